//! Describes ports as a program declares them, and opens their devices.

use super::afpacket::{self, PacketSocket};
use super::file::{FileSink, FileSource};
use super::interface::{LinkState, Pair};
use super::namespace::Namespace;
use super::tun::Tun;
use super::xdp::{self, XdpSocket};
use super::{Device, Link, OpenError, QueueId, interface};
use std::path::Path;
use std::sync::Arc;
use weft_engine::packet::port::{DeviceSettings, Driver, PortConfig};
use weft_proto::capture::Style;

/// A port with its open devices, one per queue.
pub struct OpenPort {
    pub(crate) config: PortConfig,
    pub(crate) queues: Vec<Box<dyn Device>>,
    /// Number of the interface's queues whose frames go to the host, not to the port.
    pub(crate) unserved_queues: u16,
    /// It uses XDP on a veth pair, whose far end may leave checksums unfinished.
    pub(crate) is_xdp_on_pair: bool,
    /// Its interface; None for a file.
    pub(crate) link: Option<Arc<LinkState>>,
}

impl OpenPort {
    /// Its declaration.
    pub fn config(&self) -> &PortConfig {
        &self.config
    }

    /// Its interface; None for a file.
    pub fn link(&self) -> Option<&Arc<LinkState>> {
        self.link.as_ref()
    }

    /// Whether the interface refused zero copy, so that frames are copied.
    pub fn is_zero_copy_refused(&self) -> bool {
        let is_tried = matches!(self.config.driver, Driver::Xdp { is_zero_copy_tried: true });
        is_tried && !self.queues.iter().all(|queue| queue.is_zero_copy())
    }

    /// Number of the interface's queues that the port does not serve (XDP): their frames go to the host.
    pub fn unserved_queues(&self) -> u16 {
        self.unserved_queues
    }

    /// Offloads of its interface that XDP cannot handle and that could not be turned off. Names are those of `ethtool
    /// -K`.
    pub fn stuck_offloads(&self) -> &[&'static str] {
        self.queues.first().map_or(&[], |queue| queue.stuck_offloads())
    }

    /// Whether it uses XDP on a veth pair: packets from the far end may have unfinished checksums and tags.
    pub fn is_xdp_on_pair(&self) -> bool {
        self.is_xdp_on_pair
    }

    /// Number of its queues.
    pub fn queues(&self) -> usize {
        self.queues.len()
    }

    /// Whether the pair existed already: the port uses it unchanged, and does not remove it.
    pub fn is_pair_reused(&self) -> bool {
        self.config.driver == Driver::Veth && self.link.as_ref().is_some_and(|link| !link.is_of_pair())
    }

    /// The name of its device; the system may have completed it.
    pub fn device(&self) -> &str {
        self.queues.first().map_or(&self.config.device, |queue| queue.name())
    }
}

/// Opens the devices of all ports, or none, for this many workers, 1 to
/// [`QUEUES_MAX`](weft_engine::packet::port::QUEUES_MAX). A capture that is written has Ethernet frames, unless all
/// other ports carry IP packets.
///
/// # Errors
/// The first that cannot be opened, with the name of its port.
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

/// Opens a port in the thread's namespace.
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

/// Creates the veth pair of a port and brings both ends up, unless the near end exists.
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

/// Opens the devices of port `at` again, for this many workers; none is open now. Does not wait: the calling worker
/// serves other ports, and retries.
pub(super) fn reopen(config: &PortConfig, at: u16, workers: u16) -> Result<Vec<Box<dyn Device>>, OpenError> {
    let open = || open(config, at, Link::Ethernet, (workers, true));
    match &config.namespace {
        None => open(),
        Some(name) => Namespace::open(name)?.run(open).and_then(|opened| opened),
    }
}

/// Opens the devices of a port: one per queue. `is_tried_once`: does not wait for a queue that another socket is
/// about to release.
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

/// Opens a TUN or TAP device with the port's settings, and brings it up.
fn open_tun(config: &PortConfig, link: Link, port: u16, workers: u16) -> Result<Vec<Tun>, OpenError> {
    let PortConfig { device, queues, made: DeviceSettings { mtu, mac, .. }, .. } = config;
    let (is_old, queues) = (interface::is_there(device), *queues);
    let opened = match (Tun::open(device, link, port, queues.unwrap_or(workers)), queues) {
        // An existing device may have been created for a single queue.
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

/// A fanout group. Groups belong to the namespace, and another process may use any number; including our process id
/// makes a clash unlikely.
fn fanout_group(port: u16) -> u16 {
    (std::process::id() as u16).wrapping_add(port.wrapping_mul(257))
}

fn boxed<D: Device + 'static>(devices: Vec<D>) -> Vec<Box<dyn Device>> {
    devices.into_iter().map(|device| Box::new(device) as Box<dyn Device>).collect()
}
