//! What a program's wire formats say of a frame as a whole: how deep its tunnels go, whether it is an error, whether it
//! came as it was sent.
//!
//! Each is declared: a tunnel by INNER, an error by ERROR WHERE, a checksum by COMPUTED. They are found layer by layer
//! when a chain asks, and not by its parser: what breaks a rule there is not malformed for the chain, and no fragments
//! wait ([decision 61](../../../docs/decisions/0061-a-flow-is-read-without-a-parser.md)).

use super::eval::{self, crc32c_on};
use super::read::{Header, walk};
use super::{Checksum, Expr, FieldId, Protocol, ProtocolId, Rule};
use crate::Type;
use crate::checksum::{fold, sum};
use crate::frame::{Checksum as Found, Offload};
use crate::ip::IpPacket;

/// Tunnels in one another that are counted; what is in more is not looked at.
pub const DEPTH_MAX: u8 = 64;

/// The wire formats of a program, for frames that begin with one of some.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Formats {
    /// All protocols; [`ProtocolId`] is an index.
    pub protocols: Vec<Protocol>,
    /// With which frames begin.
    pub roots: Vec<ProtocolId>,
}

impl Formats {
    /// How many tunnels a frame goes through, one in another: at most [`DEPTH_MAX`], and as far as headers are sound.
    pub fn tunnel_depth(&self, frame: &[u8]) -> u64 {
        let mut depth = 0;
        walk(&self.protocols, &self.roots, frame, DEPTH_MAX, &mut |header: &Header<'_>| {
            depth = header.level;
            true
        });
        depth.into()
    }

    /// Whether a frame tells of an error, outside of tunnels. So does one that could, and is cut or breaks a rule; a
    /// later fragment, which does not say, tells of none.
    pub fn is_error(&self, frame: &[u8]) -> bool {
        let mut is_error = false;
        let broken = walk(&self.protocols, &self.roots, frame, 0, &mut |header: &Header<'_>| {
            let error = header.protocol.error.as_ref();
            is_error = error.is_some_and(|error| eval::value(error, header) != 0);
            !is_error
        });
        is_error || broken.is_some_and(|broken| self.of(broken.protocol).error.is_some())
    }

    /// Whether the checksums that cover what a frame carries come out right, outside of tunnels. A header with one that
    /// breaks a rule has none that does. They do where nobody can tell: in fragments, behind headers that are not
    /// known, where the sender has left one out, or a device is still to make it; and where the receiver has found it
    /// right already.
    /// Source: RFC 9293 section 3.1, RFC 768, RFC 792, RFC 4443 section 2.3, RFC 9260 section 6.8.
    pub fn is_intact(&self, frame: &[u8], offload: &Offload) -> bool {
        if offload.checksum != Found::Unknown || self.goes_on(frame) {
            return true;
        }
        let mut addresses = 0;
        let mut is_intact = true;
        let broken = walk(&self.protocols, &self.roots, frame, 0, &mut |header: &Header<'_>| {
            for (field, sum) in sums(header.protocol).filter(|_| !header.is_cut) {
                is_intact &= is_right(header, field, sum, addresses);
            }
            let mut own = header.fields_of(Type::IpAddr).peekable();
            if own.peek().is_some() {
                addresses = own.map(|address| u64::from(fold(sum(address)))).sum();
            }
            is_intact
        });
        let is_damaged =
            broken.is_some_and(|broken| !broken.is_cut && sums(self.of(broken.protocol)).next().is_some());
        is_intact && !is_damaged
    }

    /// A source route goes on: checksums are those for its last address.
    fn goes_on(&self, frame: &[u8]) -> bool {
        let is_ip = self.roots.iter().all(|root| matches!(self.of(*root).begins(), Some((4, 4 | 6))));
        IpPacket::of_frame(frame, is_ip).is_some_and(|packet| !packet.upper().is_at_last_hop)
    }

    fn of(&self, id: ProtocolId) -> &Protocol {
        &self.protocols[usize::from(id.0)]
    }
}

impl Protocol {
    /// It has a checksum that covers what it carries, by which damage is found.
    pub fn covers_payload(&self) -> bool {
        sums(self).next().is_some()
    }
}

/// The checksums of a protocol that cover what it carries. Those of quoted packets, which are cut, are no more than a
/// DEFAULT.
fn sums(protocol: &Protocol) -> impl Iterator<Item = (FieldId, Checksum)> {
    let fields = protocol.fields.iter().enumerate();
    fields.filter_map(|(at, field)| match field.rule {
        Rule::Computed(Expr::Checksum(Checksum::Header)) => None,
        Rule::Computed(Expr::Checksum(sum)) => Some((FieldId(at as u16), sum)),
        _ => None,
    })
}

/// Whether a checksum of a layer comes out right; `addresses` is the sum of those below.
fn is_right(header: &Header<'_>, field: FieldId, kind: Checksum, addresses: u64) -> bool {
    let (bytes, Some((at, held))) = (header.bytes(), header.number_at(field)) else { return true };
    match kind {
        Checksum::Header => true,
        Checksum::Layer => fold(sum(bytes)) == 0xffff,
        Checksum::PseudoOrZero if held == 0 => true,
        Checksum::Pseudo | Checksum::PseudoOrZero => {
            // The number by which it is known below, which is one byte.
            let required = header.by.map(|by| by.condition.required()).unwrap_or_default();
            let number = required.into_iter().map(|(_, n)| n).find(|n| (1..=255).contains(n)).unwrap_or(0);
            fold(addresses + u64::from(fold(sum(bytes))) + bytes.len() as u64 + number) == 0xffff
        }
        Checksum::Crc32c => {
            let parts = [&bytes[..at], &[0; 4], bytes.get(at + 4..).unwrap_or_default()];
            let crc = !parts.into_iter().fold(u32::MAX, crc32c_on);
            u64::from(u32::from_be_bytes(crc.to_le_bytes())) == held
        }
    }
}
