//! The rows of tables that are `FILLED BY PORTS`.

use weft_core::{Type, Value};

use crate::hir::{Group, Port, Table};

/// The column of the key.
pub const NAME_COLUMN: &str = "port";
/// The optional columns of such a table, in addition to the port's name.
pub const KNOWN_COLUMNS: [(&str, Type); 2] = [("mtu", Type::Uint(16)), ("mac", Type::Mac)];

/// Properties of a port's device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// The longest packet in bytes, without the link header.
    pub mtu: Option<u16>,
    /// Its address on the link.
    pub mac: Option<[u8; 6]>,
}

/// The rows of such a table: one for each port, with properties from its options or else from its device (by the port's
/// index, if present), and one for each group: with the smallest MTU of its ports and without an address. A name longer
/// than the key gets no row, because no lookup could find it.
pub fn rows(ports: &[Port], groups: &[Group], devices: &[Device], table: &Table) -> Vec<Vec<Value>> {
    let known = |at: usize| ports[at].device_or(devices.get(at).copied().unwrap_or_default());
    let of_ports = ports.iter().enumerate().map(|(at, port)| (&port.name, known(at)));
    let of_groups = groups.iter().map(|group| {
        let mtu = group.members.iter().filter_map(|(at, _)| known(*at).mtu).min();
        (&group.name, Device { mtu, mac: None })
    });
    let value = |column: &str, name: &str, device: Device| match column {
        "mtu" => device.mtu.map(|mtu| Value::Int(mtu.into())),
        "mac" => device.mac.map(|mac| Value::Bytes(mac.to_vec())),
        _ => Some(Value::text(name)),
    };
    let row = |(name, device): (&String, Device)| {
        table.columns.iter().map(|column| value(&column.name, name, device).unwrap_or(Value::Null)).collect()
    };
    let fits = |(name, _): &(&String, Device)| match table.columns[0].ty {
        Type::Text(Some(max)) => name.len() <= max as usize,
        _ => true,
    };
    of_ports.chain(of_groups).filter(fits).map(row).collect()
}

impl Port {
    /// The properties that the port's options set.
    pub fn device_from_options(&self) -> Device {
        self.device_or(Device::default())
    }

    /// The properties from the port's options, completed by those of `device`.
    fn device_or(&self, device: Device) -> Device {
        let option = |name: &str| self.options.iter().find(|option| option.name == name);
        let mtu = option("mtu").and_then(|option| match option.value {
            Value::Int(mtu) => u16::try_from(mtu).ok(),
            _ => None,
        });
        let mac = option("mac").and_then(|option| match &option.value {
            Value::Bytes(mac) => mac[..].try_into().ok(),
            _ => None,
        });
        Device { mtu: mtu.or(device.mtu), mac: mac.or(device.mac) }
    }
}
