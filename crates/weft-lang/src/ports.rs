//! Rows of tables that are `FILLED BY PORTS`.

use weft_core::{Type, Value};

use crate::hir::{Group, Port, Table};

/// The column of the key.
pub const NAME_COLUMN: &str = "port";
/// What a table may tell of each port beside its name.
pub const KNOWN_COLUMNS: [(&str, Type); 2] = [("mtu", Type::Uint(16)), ("mac", Type::Mac)];

/// What is known of the device of a port.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Device {
    /// The longest packet that it takes, in bytes without the header of the link.
    pub mtu: Option<u16>,
    /// Its address on the link.
    pub mac: Option<[u8; 6]>,
}

/// The rows of such a table: one for each port, with what its options say and else its device (by the index of the
/// port, as far as there is one), and one for each group: it takes what each of its ports takes, and has no address. A
/// name that is longer than the key has no row: nobody could find it.
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
    /// What its options say of its device.
    pub fn device_from_options(&self) -> Device {
        self.device_or(Device::default())
    }

    /// What its options say of its device, and what `device` says of all else.
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
