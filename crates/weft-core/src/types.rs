//! The types of the language and the representation of their values.

use core::fmt;
use core::net::{Ipv4Addr, Ipv6Addr};
use std::borrow::Cow;

/// A type of the language, without nullability.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Type {
    /// `BOOL`
    Bool,
    /// `I8`, `I16`, `I32`, `I64`: a signed integer of that many bits.
    Int(u8),
    /// `U1` to `U64`: an unsigned integer of that many bits.
    Uint(u8),
    /// `F64`: IEEE 754 binary64, with its infinities and NaN.
    F64,
    /// `TEXT` or `TEXT(n)`: UTF-8, at most n bytes where n is given.
    Text(Option<u32>),
    /// `BYTES` or `BYTES(n)`.
    Bytes(Option<u32>),
    /// `SIZE`: a number of bytes, an unsigned 64-bit integer.
    Size,
    /// `INTERVAL`: signed nanoseconds.
    Interval,
    /// `TIMESTAMP`: nanoseconds since the Unix epoch.
    Timestamp,
    /// `IPADDR`: 4 or 16 bytes in network order.
    IpAddr,
    /// `CIDR`: an address and a prefix length.
    Cidr,
    /// `MAC`: 6 bytes.
    Mac,
    /// `ENDPOINT`: the address of a peer, as text: `127.0.0.1:6001`, `unix:/run/cart.sock`.
    Endpoint,
    /// `STATUS`: a gRPC status.
    Status,
}

/// The representation of a value in registers, slots and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Repr {
    /// 0 or 1.
    Bool,
    /// 64 bits; the operation decides on signedness.
    Int,
    /// 64 bits of IEEE 754.
    Float,
    /// A run of bytes.
    Bytes,
}

impl Type {
    /// The representation of values of this type.
    pub const fn repr(self) -> Repr {
        match self {
            Self::Bool => Repr::Bool,
            Self::Int(_) | Self::Uint(_) | Self::Size | Self::Interval | Self::Timestamp | Self::Status => {
                Repr::Int
            }
            Self::F64 => Repr::Float,
            Self::Text(_) | Self::Bytes(_) | Self::IpAddr | Self::Cidr | Self::Mac | Self::Endpoint => {
                Repr::Bytes
            }
        }
    }

    /// Whether arithmetic and comparison treat the 64 bits as signed.
    pub const fn is_signed(self) -> bool {
        matches!(self, Self::Int(_) | Self::Interval | Self::Timestamp)
    }

    /// The maximum length in bytes of a value in a table; None if the type sets no bound.
    pub const fn bytes_max(self) -> Option<u32> {
        match self {
            Self::Text(n) | Self::Bytes(n) => n,
            Self::IpAddr => Some(16),
            Self::Cidr => Some(17),
            Self::Mac => Some(6),
            Self::Endpoint => Some(crate::limits::ENDPOINT_BYTES_MAX),
            _ => Some(8),
        }
    }

    /// A value that is held as bytes, in readable form: addresses in their usual notation, and bytes that are not text
    /// in hexadecimal.
    pub fn shown(self, bytes: &[u8]) -> Cow<'_, str> {
        let net = |(len, net): (&u8, &[u8])| Some(format!("{}/{len}", address(net)?));
        let read = match self {
            Self::IpAddr => address(bytes),
            Self::Cidr => bytes.split_last().and_then(net),
            Self::Mac => Some(hex(bytes, ":")),
            Self::Bytes(_) => None,
            _ => return String::from_utf8_lossy(bytes),
        };
        read.unwrap_or_else(|| hex(bytes, "")).into()
    }
}

/// Formats an IPv4 or IPv6 address; None for other lengths.
fn address(bytes: &[u8]) -> Option<String> {
    let four = || Some(Ipv4Addr::from(<[u8; 4]>::try_from(bytes).ok()?).to_string());
    let sixteen = || Some(Ipv6Addr::from(<[u8; 16]>::try_from(bytes).ok()?).to_string());
    four().or_else(sixteen)
}

fn hex(bytes: &[u8], between: &str) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().join(between)
}

impl fmt::Display for Type {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Bool => f.write_str("BOOL"),
            Self::Int(bits) => write!(f, "I{bits}"),
            Self::Uint(bits) => write!(f, "U{bits}"),
            Self::F64 => f.write_str("F64"),
            Self::Text(None) => f.write_str("TEXT"),
            Self::Text(Some(n)) => write!(f, "TEXT({n})"),
            Self::Bytes(None) => f.write_str("BYTES"),
            Self::Bytes(Some(n)) => write!(f, "BYTES({n})"),
            Self::Size => f.write_str("SIZE"),
            Self::Interval => f.write_str("INTERVAL"),
            Self::Timestamp => f.write_str("TIMESTAMP"),
            Self::IpAddr => f.write_str("IPADDR"),
            Self::Cidr => f.write_str("CIDR"),
            Self::Mac => f.write_str("MAC"),
            Self::Endpoint => f.write_str("ENDPOINT"),
            Self::Status => f.write_str("STATUS"),
        }
    }
}

/// A value of any type in its representation. The type tells how to read it.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// No value.
    Null,
    /// [`Repr::Bool`]
    Bool(bool),
    /// [`Repr::Int`]: unsigned values as the same 64 bits.
    Int(i64),
    /// [`Repr::Float`]
    Float(f64),
    /// [`Repr::Bytes`]
    Bytes(Vec<u8>),
}

impl Value {
    /// The value as a word; 0 for NULL and for bytes.
    pub fn word(&self) -> u64 {
        match self {
            Self::Bool(b) => u64::from(*b),
            Self::Int(n) => *n as u64,
            Self::Float(x) => x.to_bits(),
            Self::Null | Self::Bytes(_) => 0,
        }
    }

    /// A text value.
    pub fn text(s: &str) -> Self {
        Self::Bytes(s.as_bytes().to_vec())
    }
}
