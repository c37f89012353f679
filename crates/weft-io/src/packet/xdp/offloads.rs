//! Turns off the receive offloads that XDP cannot handle while a port is open, and restores them afterwards.
//!
//! XDP gets each packet as it was on the wire, in one buffer. An interface that merges packets (GRO, LRO) makes packets
//! longer than a buffer. One that strips the VLAN tag (802.1Q) delivers packets without it. Source: Linux
//! `Documentation/networking/segmentation-offloads.rst`, `linux/ethtool.h`.

use super::super::interface::ioctl_socket;
use super::super::sys::{self, InterfaceRequest};
use std::os::fd::OwnedFd;

/// A setting of an interface, and its ethtool commands.
struct Setting {
    /// Its name in `ethtool -K`.
    name: &'static str,
    get: u32,
    set: u32,
    /// Its bit in the value.
    bit: u32,
}

const GET_FLAGS: u32 = 0x25;
const SET_FLAGS: u32 = 0x26;

/// The settings to turn off.
const SETTINGS: [Setting; 3] = [
    Setting { name: "gro", get: 0x2b, set: 0x2c, bit: 1 },
    Setting { name: "lro", get: GET_FLAGS, set: SET_FLAGS, bit: 1 << 15 },
    Setting { name: "rxvlan", get: GET_FLAGS, set: SET_FLAGS, bit: 1 << 8 },
];

/// The settings of an interface that were turned off; dropping this restores them.
#[derive(Debug)]
pub(super) struct Offloads {
    /// Its network namespace is that of the interface.
    socket: OwnedFd,
    name: String,
    /// Indexes into [`SETTINGS`] of those that were turned off.
    off: Vec<usize>,
    /// Those that could not be turned off.
    stuck: Vec<&'static str>,
}

impl Offloads {
    /// Turns them off for an interface in the thread's namespace. None: there are too many descriptors.
    pub(super) fn turn_off(name: &str) -> Option<Self> {
        let mut offloads =
            Self { socket: ioctl_socket().ok()?, name: name.to_owned(), off: Vec::new(), stuck: Vec::new() };
        for (at, setting) in SETTINGS.iter().enumerate() {
            // An unknown setting counts as off.
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

    /// The settings that are on and cannot be turned off, by their names in `ethtool -K`.
    pub(super) fn stuck(&self) -> &[&'static str] {
        &self.stuck
    }

    fn value(&self, setting: &Setting) -> Option<u32> {
        let mut value = 0;
        self.request(setting.get, &mut value).then_some(value)
    }

    /// Changes a setting; returns whether it has the new value.
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
        // If the interface is gone, there is nothing to restore.
        self.off.iter().rev().for_each(|at| _ = self.set(&SETTINGS[*at], true));
    }
}
