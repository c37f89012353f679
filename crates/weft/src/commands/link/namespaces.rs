//! The two ends of an emulated link: a network namespace for the command, and the host's namespace.
//!
//! Each end has a TUN device whose other side is ours. Both devices vanish with this process, however it ends; the
//! namespace vanishes with its last process.

use crate::fault::Fault;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::fs;
use weft_engine::packet::port::{DeviceSettings, Driver, PortConfig};
use weft_io::packet::OpenError;
use weft_io::packet::interface;
use weft_io::packet::namespace::Namespace;
use weft_io::packet::port::{self, OpenPort};

/// The maximum number of emulated links at once in one namespace.
const LINKS_MAX: u8 = 255;
/// The range of both addresses: shared address space of carriers (RFC 6598).
const NETWORK: [u8; 2] = [100, 64];
const PREFIX: u8 = 30;
/// The range of both IPv6 addresses: unique local addresses (RFC 4193).
const NETWORK_V6: [u16; 3] = [0xfd64, 0x7766, 0x7400];
const PREFIX_V6: u8 = 64;

/// The namespaces of both ends.
pub(super) struct Namespaces {
    /// The command's namespace.
    pub(super) inside: Namespace,
    /// Whether the other end is a namespace of this process, too, and not the host's.
    pub(super) is_own: bool,
}

/// The addresses of both ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct EndAddresses {
    pub(super) outside: Ipv4Addr,
    pub(super) inside: Ipv4Addr,
    /// The IPv6 addresses, the outside one first; None if the machine has no IPv6.
    pub(super) v6: Option<[Ipv6Addr; 2]>,
}

impl Namespaces {
    /// Makes the namespace of the command, and one for the other end if this user may not change the host's. The
    /// process must not have threads yet.
    pub(super) fn make() -> Result<Self, Fault> {
        let is_own = !has_network_capabilities();
        if is_own {
            Namespace::enter_own().map_err(|error| fault(&error))?;
        }
        let inside = Namespace::make().map_err(|error| fault(&error))?;
        Ok(Self { inside, is_own })
    }

    /// Makes the device of each end; the first is the command's.
    pub(super) fn open(&self, names: [&str; 2]) -> Result<([OpenPort; 2], EndAddresses), Fault> {
        let [inside, outside] = [("link0", Some(self.inside.path())), ("weft%d", None)];
        let config = |name: &str, (device, namespace): (&str, Option<String>)| PortConfig {
            name: name.to_owned(),
            driver: Driver::Tun,
            device: device.to_owned(),
            namespace,
            queues: Some(1),
            made: DeviceSettings::default(),
        };
        let ports = [config(names[0], inside), config(names[1], outside)];
        let opened = port::open_all(&ports, 1).map_err(|(_, error)| fault(&error))?;
        let ports: [OpenPort; 2] =
            opened.try_into().unwrap_or_else(|_| unreachable!("a device for each port"));
        let mut ends = free_addresses()?;
        let addresses = [ends.outside, ends.inside].map(IpAddr::V4);
        self.assign_addresses(&ports, addresses, PREFIX).map_err(|error| fault(&error))?;
        // A machine may well do without IPv6.
        let addresses = ends.v6.map(|addresses| addresses.map(IpAddr::V6));
        ends.v6 = ends
            .v6
            .filter(|_| addresses.is_some_and(|of| self.assign_addresses(&ports, of, PREFIX_V6).is_ok()));
        Ok((ports, ends))
    }

    /// Assigns the addresses of both ends, the outside one first, and sets the default route of the command's
    /// namespace.
    fn assign_addresses(
        &self,
        ports: &[OpenPort; 2],
        addresses: [IpAddr; 2],
        prefix: u8,
    ) -> Result<(), OpenError> {
        let [outside, inside] = addresses;
        interface::add_address(ports[1].device(), outside, prefix)?;
        let device = ports[0].device();
        let inner = || {
            interface::add_address(device, inside, prefix)?;
            interface::add_default_route(device, inside.is_ipv6())
        };
        self.inside.run(inner).and_then(|done| done)
    }
}

/// Converts an error of a device or namespace to a fault of the environment, with its help.
fn fault(error: &OpenError) -> Fault {
    let fault = Fault::environment(format!("`{}`: cannot {}: {}", error.name, error.doing, error.error));
    match error.help {
        Some(help) => fault.with_help(help),
        None => fault,
    }
}

/// Whether this process may make interfaces and namespaces: it has `CAP_NET_ADMIN` and `CAP_SYS_ADMIN`.
fn has_network_capabilities() -> bool {
    const WANTED: u64 = 1 << 12 | 1 << 21;
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let held = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    held.and_then(|held| u64::from_str_radix(held.trim(), 16).ok())
        .is_some_and(|held| held & WANTED == WANTED)
}

/// Picks the first /30 of the range without a route in this namespace, and the IPv6 prefix of the same number: links
/// can be nested, or run beside each other. Fails if all are in use.
fn free_addresses() -> Result<EndAddresses, Fault> {
    let routes = fs::read_to_string("/proc/thread-self/net/route").unwrap_or_default();
    let taken: Vec<&str> = routes.lines().filter_map(|line| line.split_ascii_whitespace().nth(1)).collect();
    let [a, b] = NETWORK;
    let is_free = |nth: &u8| !taken.contains(&&*format!("{:08X}", u32::from_ne_bytes([a, b, *nth, 0])));
    let nth = (0..LINKS_MAX).find(is_free);
    let nth = nth.ok_or_else(|| Fault::environment("all addresses for links are taken here"))?;
    let [c, d, e] = NETWORK_V6;
    let v6 = [1, 2].map(|end| Ipv6Addr::new(c, d, e, nth.into(), 0, 0, 0, end));
    let [outside, inside] = [1, 2].map(|end| Ipv4Addr::new(a, b, nth, end));
    Ok(EndAddresses { outside, inside, v6: Some(v6) })
}
