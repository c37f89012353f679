//! A port as a program declares it, and the devices that it has.

use super::afpacket::{self, PacketSocket};
use super::file::{FileSink, FileSource, Pace};
use super::interface::{LinkState, Pair};
use super::namespace::Namespace;
use super::tun::{self, Tun};
use super::xdp::{self, XdpSocket};
use super::{Device, Link, OpenError, QueueId, interface};
use core::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use weft_proto::capture::Style;

/// Queues that a port may have, by any driver.
pub const QUEUES_MAX: u16 = if tun::QUEUES_MAX < xdp::QUEUES_MAX { tun::QUEUES_MAX } else { xdp::QUEUES_MAX };

/// A port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// What the program calls it.
    pub name: String,
    /// What carries its frames.
    pub driver: Driver,
    /// The interface or the file.
    pub device: String,
    /// The network namespace that the interface is in, as [`Namespace::open`] takes it; `None`: that of the process.
    pub namespace: Option<String>,
    /// How many queues, 1 to [`QUEUES_MAX`]; `None`: one for each worker, as far as the device can, and with XDP all
    /// that the interface has. A capture has one.
    pub queues: Option<u16>,
    /// How a device is to be that the port makes.
    pub made: DeviceSettings,
}

/// How a device is to be that does not exist before its port is opened; what is not said is the system's choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceSettings {
    /// Bytes of its longest packet.
    pub mtu: Option<u16>,
    /// The host's address on it, of a TAP device; ours, of a pair.
    pub mac: Option<[u8; 6]>,
    /// The other end of a pair.
    pub peer: Option<Peer>,
}

/// The end of a pair that is not the port's.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// The network namespace that it goes to, as [`Namespace::open`] takes it; `None`: it stays with the other end.
    pub namespace: Option<String>,
    /// Its address, and how many bits of it are those of its network.
    pub address: Option<(IpAddr, u8)>,
}

/// What carries the frames of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Packet sockets on an interface.
    Packet,
    /// XDP sockets on an interface.
    Xdp {
        /// The interface may write into our memory itself.
        is_zero_copy_tried: bool,
    },
    /// Packet sockets on one end of a pair of interfaces that the port makes.
    Veth,
    /// A TUN device that the port makes.
    Tun,
    /// A TAP device that the port makes.
    Tap,
    /// A capture that is read.
    Read(Pace),
    /// A capture that is written.
    Write,
}

impl Driver {
    /// The word of the language.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Packet => "packet",
            Self::Xdp { .. } => "xdp",
            Self::Veth => "veth",
            Self::Tun => "tun",
            Self::Tap => "tap",
            Self::Read(_) | Self::Write => "pcap",
        }
    }

    /// Its device is a file, and may be at its end.
    pub(crate) const fn is_file(self) -> bool {
        matches!(self, Self::Read(_) | Self::Write)
    }
}

/// A port whose devices are open: one for each queue.
pub struct OpenPort {
    pub(crate) config: PortConfig,
    pub(crate) queues: Vec<Box<dyn Device>>,
    /// Queues of the interface whose frames the host has and not the port.
    pub(crate) unserved_queues: u16,
    /// Its packets go round the host, and come from the other end of a pair, which may leave them unfinished.
    pub(crate) is_xdp_on_pair: bool,
    /// Of its device; None for a file.
    pub(crate) link: Option<Arc<LinkState>>,
}

impl OpenPort {
    /// The port.
    pub fn config(&self) -> &PortConfig {
        &self.config
    }

    /// Its interface; None for a file.
    pub fn link(&self) -> Option<&Arc<LinkState>> {
        self.link.as_ref()
    }

    /// Whether frames are copied though its interface was asked to write into our memory itself.
    pub fn is_zero_copy_refused(&self) -> bool {
        let is_tried = matches!(self.config.driver, Driver::Xdp { is_zero_copy_tried: true });
        is_tried && !self.queues.iter().all(|queue| queue.is_zero_copy())
    }

    /// Queues of its interface that it has not, of XDP: their frames go to the host.
    pub fn unserved_queues(&self) -> u16 {
        self.unserved_queues
    }

    /// What its interface does to packets that XDP cannot have, and would not stop doing: as `ethtool -K` calls it.
    pub fn stuck_offloads(&self) -> &[&'static str] {
        self.queues.first().map_or(&[], |queue| queue.stuck_offloads())
    }

    /// Whether its packets go round the host (XDP) and come from the other end of a pair, which may leave checksums and
    /// tags to be finished.
    pub fn is_xdp_on_pair(&self) -> bool {
        self.is_xdp_on_pair
    }

    /// How many queues it has.
    pub fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Whether it was to make a pair of interfaces, and its end was there already: that is used as it is, and stays.
    pub fn is_pair_reused(&self) -> bool {
        self.config.driver == Driver::Veth && self.link.as_ref().is_some_and(|link| !link.is_of_pair())
    }

    /// What its device is called: the system may have completed the name.
    pub fn device(&self) -> &str {
        self.queues.first().map_or(&self.config.device, |queue| queue.name())
    }
}

/// Opens the devices of all ports, or none, for so many workers, 1 to [`QUEUES_MAX`]. A capture that is written has
/// Ethernet frames, unless all other ports carry IP packets.
///
/// # Errors
/// The first that cannot be opened, and the name of its port.
pub fn open_all(ports: &[PortConfig], workers: u16) -> Result<Vec<OpenPort>, (String, OpenError)> {
    let carries_ip = ports.iter().any(|port| port.driver == Driver::Tun)
        && ports.iter().all(|port| matches!(port.driver, Driver::Tun | Driver::Write));
    let link = if carries_ip { Link::Ip } else { Link::Ethernet };
    let open = |(at, port): (usize, &PortConfig)| {
        let opened = match &port.namespace {
            None => open_one(port, at as u16, link, workers),
            Some(name) => {
                let namespace = Namespace::open(name).map_err(|error| (port.name.clone(), error))?;
                namespace.run(|| open_one(port, at as u16, link, workers)).and_then(|opened| opened)
            }
        };
        opened.map_err(|error| (port.name.clone(), error))
    };
    ports.iter().enumerate().map(open).collect()
}

/// Opens a port in the namespace that the thread is in.
fn open_one(config: &PortConfig, port: u16, link: Link, workers: u16) -> Result<OpenPort, OpenError> {
    let made = if config.driver == Driver::Veth { make_pair(config)? } else { None };
    let queues = open(config, port, link, (workers, false))?;
    let there = match config.driver {
        Driver::Xdp { .. } => interface::receive_queues(&config.device).unwrap_or(0),
        _ => 0,
    };
    let unserved_queues = there.saturating_sub(queues.len() as u16);
    let is_xdp = matches!(config.driver, Driver::Xdp { .. });
    let is_xdp_on_pair = is_xdp && interface::driver(&config.device).is_some_and(|driver| driver == "veth");
    let mut open = OpenPort { config: config.clone(), queues, unserved_queues, is_xdp_on_pair, link: None };
    if !config.driver.is_file() {
        let link = LinkState::of(open.device())?.of_pair(made);
        link.set_mtu_max(open.queues.first().map(|queue| &**queue));
        open.link = Some(Arc::new(link));
    }
    Ok(open)
}

/// Makes the pair of a port, with both ends up, if its own end is not there: what somebody else made stays as it is.
fn make_pair(config: &PortConfig) -> Result<Option<Pair>, OpenError> {
    let PortConfig { device, namespace, made: DeviceSettings { mtu, mac, peer }, .. } = config;
    let Some(peer) = peer.as_ref().filter(|_| !interface::is_there(device)) else { return Ok(None) };
    let there = peer.namespace.as_deref().map(Namespace::open).transpose()?;
    let pair = Pair::make(device, &peer.name, namespace.as_deref(), there.as_ref())?;
    let set = |name: &str| match mtu {
        Some(mtu) => interface::set_mtu(name, *mtu),
        None => Ok(()),
    };
    let begin = || {
        set(&peer.name)?;
        if let Some((address, prefix)) = peer.address {
            interface::add_address(&peer.name, address, prefix)?;
        }
        interface::set_up(&peer.name, true)
    };
    match &there {
        Some(there) => there.run(begin)??,
        None => begin()?,
    }
    set(device)?;
    if let Some(mac) = mac {
        interface::set_mac(device, *mac)?;
    }
    interface::set_up(device, true)?;
    Ok(Some(pair))
}

/// Opens the devices of a port once more, the `at`th, for so many workers. None is open. It does not wait, as a worker
/// does it whose other ports go on, and that tries again.
pub(super) fn reopen(config: &PortConfig, at: u16, workers: u16) -> Result<Vec<Box<dyn Device>>, OpenError> {
    let open = || open(config, at, Link::Ethernet, (workers, true));
    match &config.namespace {
        None => open(),
        Some(name) => Namespace::open(name)?.run(open).and_then(|opened| opened),
    }
}

fn open(
    config: &PortConfig,
    port: u16,
    link: Link,
    (workers, is_tried_once): (u16, bool),
) -> Result<Vec<Box<dyn Device>>, OpenError> {
    let PortConfig { device, queues, .. } = config;
    Ok(match config.driver {
        Driver::Packet | Driver::Veth => {
            let queues = queues.unwrap_or(workers);
            let fanout = (queues > 1).then(|| fanout_group(port));
            let options = afpacket::Options { fanout, ..afpacket::Options::default() };
            let socket = |queue| PacketSocket::open(device, QueueId { port, queue }, options);
            boxed((0..queues).map(socket).collect::<Result<Vec<_>, _>>()?)
        }
        Driver::Xdp { is_zero_copy_tried } => {
            let options = xdp::Options { is_zero_copy_tried, is_tried_once, ..xdp::Options::default() };
            boxed(match *queues {
                Some(queues) => XdpSocket::open(device, port, queues, options)?,
                None => XdpSocket::open_all(device, port, options)?,
            })
        }
        Driver::Tun => boxed(open_tun(config, Link::Ip, port, workers)?),
        Driver::Tap => boxed(open_tun(config, Link::Ethernet, port, workers)?),
        Driver::Read(pace) => boxed(vec![FileSource::open(
            Path::new(device),
            Link::Ethernet,
            QueueId { port, queue: 0 },
            pace,
        )?]),
        Driver::Write => boxed(vec![FileSink::create(Path::new(device), link, Style::of_name(device))?]),
    })
}

/// A device that we make is as the port says, and of no use until it is up.
fn open_tun(config: &PortConfig, link: Link, port: u16, workers: u16) -> Result<Vec<Tun>, OpenError> {
    let PortConfig { device, queues, made: DeviceSettings { mtu, mac, .. }, .. } = config;
    let (is_old, queues) = (interface::is_there(device), *queues);
    let opened = match (Tun::open(device, link, port, queues.unwrap_or(workers)), queues) {
        // One that is there already may have been made for a single queue.
        (Err(_), None) if workers > 1 => Tun::open(device, link, port, 1)?,
        (opened, _) => opened?,
    };
    let name = opened[0].name();
    if let Some(mtu) = mtu.filter(|_| !is_old) {
        interface::set_mtu(name, mtu)?;
    }
    if let Some(mac) = mac.filter(|_| !is_old && link == Link::Ethernet) {
        interface::set_mac(name, mac)?;
    }
    interface::set_up(name, true)?;
    Ok(opened)
}

/// Groups are the namespace's, so that another process may have taken any: its own number makes that unlikely.
fn fanout_group(port: u16) -> u16 {
    (std::process::id() as u16).wrapping_add(port.wrapping_mul(257))
}

fn boxed<D: Device + 'static>(devices: Vec<D>) -> Vec<Box<dyn Device>> {
    devices.into_iter().map(|device| Box::new(device) as Box<dyn Device>).collect()
}
