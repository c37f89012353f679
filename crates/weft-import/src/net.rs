//! Networks: address prefixes.

use super::names::number;
use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network: all addresses with the same prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Net {
    /// The address, left-aligned in 32 or 128 bits.
    pub(crate) bits: u128,
    /// The prefix length.
    pub(crate) len: u8,
    /// 128 bits instead of 32.
    pub(crate) is_v6: bool,
}

impl Net {
    pub(crate) fn bits_max(self) -> u8 {
        if self.is_v6 { 128 } else { 32 }
    }

    /// Reads `10.0.0.0/8`, a single address, or an address with a contiguous mask.
    pub(crate) fn read(text: &str) -> Option<Self> {
        let (address, len) = text.split_once('/').map_or((text, None), |(address, len)| (address, Some(len)));
        let (bits, is_v6) = address_bits(address)?;
        let bits_max = if is_v6 { 128 } else { 32 };
        let len = match len {
            None => bits_max,
            Some(len) => number(len).or_else(|| mask_len(len, is_v6))?,
        };
        (len <= bits_max).then(|| Self { bits: cut(bits, len, bits_max), len, is_v6 })
    }

    /// The networks that together cover an address range.
    pub(crate) fn of_range(from: &str, to: &str) -> Option<Vec<Self>> {
        let ((mut low, is_v6), (high, other)) = (address_bits(from)?, address_bits(to)?);
        if is_v6 != other || low > high {
            return None;
        }
        let bits_max: u8 = if is_v6 { 128 } else { 32 };
        let mut nets = Vec::new();
        loop {
            // The largest block that begins here and ends no later.
            let last = |free: u8| low | u128::MAX.checked_shr(128 - u32::from(free)).unwrap_or(0);
            let mut free = (low.trailing_zeros() as u8).min(bits_max);
            while last(free) > high {
                free -= 1;
            }
            nets.push(Self { bits: low, len: bits_max - free, is_v6 });
            let last = last(free);
            if last >= high {
                return Some(nets);
            }
            low = last + 1;
        }
    }

    /// Whether it is a network of IPv4-mapped IPv6 addresses (RFC 4291 section 2.5.5.2); packets of those are IPv4
    /// here.
    pub(crate) fn is_mapped(&self) -> bool {
        self.is_v6 && self.len >= 96 && self.bits >> 32 == 0xffff
    }

    /// The intersection.
    pub(crate) fn both(&self, other: &Self) -> Option<Self> {
        let (short, long) = if self.len <= other.len { (self, other) } else { (other, self) };
        let is_inside = short.is_v6 == long.is_v6 && cut(long.bits, short.len, long.bits_max()) == short.bits;
        is_inside.then_some(*long)
    }

    /// Appends the networks that together cover this network without `some`, which are sorted by their bits.
    pub(crate) fn without(self, some: &[Self], others: &mut Vec<Self>) {
        if some.iter().any(|net| net.len <= self.len) {
            return;
        }
        if some.is_empty() {
            return others.push(self);
        }
        let len = self.len + 1;
        let upper = Self { bits: self.bits | 1 << (self.bits_max() - len), len, ..self };
        let (in_lower, in_upper) = some.split_at(some.partition_point(|net| net.bits < upper.bits));
        Self { len, ..self }.without(in_lower, others);
        upper.without(in_upper, others);
    }
}

impl fmt::Display for Net {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.is_v6 {
            true => write!(f, "{}/{}", Ipv6Addr::from(self.bits), self.len),
            false => write!(f, "{}/{}", Ipv4Addr::from(self.bits as u32), self.len),
        }
    }
}

/// Parses an address. Returns its bits, and whether it is IPv6.
fn address_bits(text: &str) -> Option<(u128, bool)> {
    match text.parse::<IpAddr>().ok()? {
        IpAddr::V4(address) => Some((u32::from(address).into(), false)),
        IpAddr::V6(address) => Some((u128::from(address), true)),
    }
}

/// The length of a contiguous mask.
fn mask_len(text: &str, is_v6: bool) -> Option<u8> {
    let (mask, other) = address_bits(text)?;
    let mask = if is_v6 { mask } else { mask << 96 };
    (other == is_v6 && mask.leading_ones() + mask.trailing_zeros().min(128) >= 128)
        .then(|| mask.leading_ones() as u8)
}

fn cut(bits: u128, len: u8, bits_max: u8) -> u128 {
    let free = bits_max - len;
    if free >= 128 { 0 } else { bits >> free << free }
}
