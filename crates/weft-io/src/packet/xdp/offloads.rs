//! What an interface does to packets that XDP cannot have: that is off while a port is open, and comes back with its
//! end.
//!
//! XDP sees a packet as it was on the wire, in one buffer. An interface that joins packets (GRO, LRO) makes longer ones
//! than a buffer holds, and one that keeps the tag of a packet beside it (802.1Q) hands it over without. Source: Linux
//! `Documentation/networking/segmentation-offloads.rst`, `linux/ethtool.h`.

use super::super::interface::ioctl_socket;
use super::super::sys::{self, InterfaceRequest};
use std::os::fd::OwnedFd;

/// A setting of an interface, and how it is asked for and changed.
struct Setting {
    /// As `ethtool -K` calls it.
    name: &'static str,
    get: u32,
    set: u32,
    /// Which bit of the value it is.
    bit: u32,
}

const GET_FLAGS: u32 = 0x25;
const SET_FLAGS: u32 = 0x26;

/// Those that are off.
const SETTINGS: [Setting; 3] = [
    Setting { name: "gro", get: 0x2b, set: 0x2c, bit: 1 },
    Setting { name: "lro", get: GET_FLAGS, set: SET_FLAGS, bit: 1 << 15 },
    Setting { name: "rxvlan", get: GET_FLAGS, set: SET_FLAGS, bit: 1 << 8 },
];

/// The settings of an interface that were on, and are off as long as this is there.
#[derive(Debug)]
pub(super) struct Offloads {
    /// It says in which namespace the interface is.
    socket: OwnedFd,
    name: String,
    /// Which of [`SETTINGS`] were turned off.
    off: Vec<usize>,
    /// Those that could not be.
    stuck: Vec<&'static str>,
}

impl Offloads {
    /// Turns them off, of an interface in the namespace that the thread is in. None: there are too many descriptors.
    pub(super) fn turn_off(name: &str) -> Option<Self> {
        let mut offloads =
            Self { socket: ioctl_socket().ok()?, name: name.to_owned(), off: Vec::new(), stuck: Vec::new() };
        for (at, setting) in SETTINGS.iter().enumerate() {
            // One that it does not know is off.
            if offloads.value(setting).is_none_or(|value| value & setting.bit == 0) {
                continue;
            }
            match offloads.set(setting, false) {
                true => offloads.off.push(at),
                false => offloads.stuck.push(setting.name),
            }
        }
        Some(offloads)
    }

    /// What is on and cannot be turned off, as `ethtool -K` calls it.
    pub(super) fn stuck(&self) -> &[&'static str] {
        &self.stuck
    }

    fn value(&self, setting: &Setting) -> Option<u32> {
        let mut value = 0;
        self.request(setting.get, &mut value).then_some(value)
    }

    /// Whether the setting is so afterwards.
    fn set(&self, setting: &Setting, is_on: bool) -> bool {
        let Some(old) = self.value(setting) else { return false };
        let mut value = if is_on { old | setting.bit } else { old & !setting.bit };
        self.request(setting.set, &mut value)
            && self.value(setting).is_some_and(|new| (new & setting.bit != 0) == is_on)
    }

    fn request(&self, command: u32, value: &mut u32) -> bool {
        let mut request = InterfaceRequest::Ethtool { command, value };
        sys::interface_ioctl(&self.socket, sys::ETHTOOL, &self.name, &mut request).is_ok()
    }
}

impl Drop for Offloads {
    fn drop(&mut self) {
        // An interface that is gone has nothing to come back to.
        self.off.iter().rev().for_each(|at| _ = self.set(&SETTINGS[*at], true));
    }
}
