//! The declaration of a port: plain data, from which a driver opens its device.

use core::net::IpAddr;

/// Largest number of queues of a port, for any driver: Linux has as many for TUN (`MAX_TAP_QUEUES`).
pub const QUEUES_MAX: u16 = 256;

/// The declaration of a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PortConfig {
    /// Its name in the program.
    pub name: String,
    /// Its driver.
    pub driver: Driver,
    /// The interface or the file.
    pub device: String,
    /// The network namespace of the interface, a name or a path; `None`: that of the process.
    pub namespace: Option<String>,
    /// Number of queues, 1 to [`QUEUES_MAX`]; `None`: one per worker if the device can, with XDP all queues of the
    /// interface. A capture has one.
    pub queues: Option<u16>,
    /// Settings for a device that the port creates.
    pub made: DeviceSettings,
}

/// Settings of a device that the port creates; the system chooses missing ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct DeviceSettings {
    /// Bytes of the longest packet.
    pub mtu: Option<u16>,
    /// For a TAP device the host's address; for a pair our own.
    pub mac: Option<[u8; 6]>,
    /// The other end of a veth pair.
    pub peer: Option<Peer>,
}

/// The far end of a veth pair.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// The network namespace that it is moved to, a name or a path; `None`: it stays with the near end.
    pub namespace: Option<String>,
    /// Its address and prefix length.
    pub address: Option<(IpAddr, u8)>,
}

/// The driver of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Driver {
    /// Packet sockets on an interface.
    Packet,
    /// XDP sockets on an interface.
    Xdp {
        /// Try zero copy: the interface writes into our memory directly.
        is_zero_copy_tried: bool,
    },
    /// Packet sockets on one end of a veth pair that the port creates.
    Veth,
    /// A TUN device that the port creates.
    Tun,
    /// A TAP device that the port creates.
    Tap,
    /// A capture as input.
    Read(Pace),
    /// A capture as output.
    Write,
}

impl Driver {
    /// Its keyword.
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

    /// Its device is a file, which may end.
    pub const fn is_file(self) -> bool {
        matches!(self, Self::Read(_) | Self::Write)
    }
}

/// When the packets of a capture arrive.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pace {
    /// At once. Each has the time of its capture as arrival time, so timing in the program works as it did then.
    #[default]
    Full,
    /// With the recorded gaps. They have the time of delivery as arrival time.
    Recorded,
}

/// Counters of a device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DeviceCounters {
    /// Packets received.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Packets sent.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets dropped before they reached us: we were too slow, or they did not fit in an XDP buffer.
    pub overrun: u64,
    /// Packets dropped on arrival: longer than any buffer, of another link type, or with impossible metadata.
    pub refused_in: u64,
    /// Packets dropped on departure: the device cannot carry them.
    pub refused_out: u64,
    /// How often the device had no room for all packets.
    pub full: u64,
    /// System calls.
    pub syscalls: u64,
}

impl DeviceCounters {
    /// Adds the counters of another device.
    pub fn add(&mut self, other: &Self) {
        self.received += other.received;
        self.received_bytes += other.received_bytes;
        self.sent += other.sent;
        self.sent_bytes += other.sent_bytes;
        self.overrun += other.overrun;
        self.refused_in += other.refused_in;
        self.refused_out += other.refused_out;
        self.full += other.full;
        self.syscalls += other.syscalls;
    }
}
