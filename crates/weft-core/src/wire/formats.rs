//! Properties of a whole frame that follow from the wire formats of a program: tunnel depth, error messages, intact
//! checksums.
//!
//! The definitions declare each of them: a tunnel by INNER, an error by ERROR WHERE, a checksum by COMPUTED. They are
//! computed layer by layer on demand, not by the chain's parser: a broken rule does not make a frame malformed for the
//! chain, and no fragments wait (decision 0096).

use super::eval::{self, crc32c_on};
use super::read::{Header, walk};
use super::{Checksum, Expr, FieldId, Protocol, ProtocolId, Rule};
use crate::Type;
use crate::checksum::{fold, sum};
use crate::frame::{Checksum as Found, Offload};
use crate::ip::IpPacket;

/// Maximum number of nested tunnels that are counted; deeper ones are ignored.
pub const DEPTH_MAX: u8 = 64;

/// The wire formats of a program, and the protocols with which its frames begin.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Formats {
    /// All protocols; [`ProtocolId`] is an index.
    pub protocols: Vec<Protocol>,
    /// The protocols with which frames may begin.
    pub roots: Vec<ProtocolId>,
}

impl Formats {
    /// The number of nested tunnels of a frame, at most [`DEPTH_MAX`], as far as its headers are well-formed.
    pub fn tunnel_depth(&self, frame: &[u8]) -> u64 {
        let mut depth = 0;
        walk(&self.protocols, &self.roots, frame, DEPTH_MAX, &mut |header: &Header<'_>| {
            depth = header.level;
            true
        });
        depth.into()
    }

    /// Whether a frame is an error message, outside of tunnels. A frame that could be one, but is cut or malformed,
    /// counts as one. A later fragment does not.
    pub fn is_error(&self, frame: &[u8]) -> bool {
        let mut is_error = false;
        let broken = walk(&self.protocols, &self.roots, frame, 0, &mut |header: &Header<'_>| {
            let error = header.protocol.error.as_ref();
            is_error = error.is_some_and(|error| eval::value(error, header) != 0);
            !is_error
        });
        is_error || broken.is_some_and(|broken| self.of(broken.protocol).error.is_some())
    }

    /// Whether the checksums over the payload are correct, outside of tunnels. A malformed header with such a checksum
    /// counts as damaged.
    ///
    /// Checksums that cannot be verified count as correct: in fragments, behind unknown headers, if the sender omitted
    /// them, or if a device still has to compute them. So do those that the receiver has already verified. Source: RFC
    /// 9293 section 3.1, RFC 768, RFC 792, RFC 4443 section 2.3, RFC 9260 section 6.8.
    pub fn is_intact(&self, frame: &[u8], offload: &Offload) -> bool {
        if offload.checksum != Found::Unknown || self.has_more_hops(frame) {
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

    /// Whether a source route continues: checksums then use its last address.
    fn has_more_hops(&self, frame: &[u8]) -> bool {
        let is_ip = self.roots.iter().all(|root| matches!(self.of(*root).begins(), Some((4, 4 | 6))));
        IpPacket::of_frame(frame, is_ip).is_some_and(|packet| !packet.upper().is_at_last_hop)
    }

    fn of(&self, id: ProtocolId) -> &Protocol {
        &self.protocols[usize::from(id.0)]
    }
}

impl Protocol {
    /// Whether it has a checksum over its payload, which detects damage.
    pub fn covers_payload(&self) -> bool {
        sums(self).next().is_some()
    }
}

/// The checksums of a protocol over its payload. For quoted packets, which are cut, definitions use DEFAULT, so they
/// are not among these.
fn sums(protocol: &Protocol) -> impl Iterator<Item = (FieldId, Checksum)> {
    let fields = protocol.fields.iter().enumerate();
    fields.filter_map(|(at, field)| match field.rule {
        Rule::Computed(Expr::Checksum(Checksum::Header)) => None,
        Rule::Computed(Expr::Checksum(sum)) => Some((FieldId(at as u16), sum)),
        _ => None,
    })
}

/// Whether a checksum of a layer is correct; `addresses` is the sum of the addresses below.
fn is_right(header: &Header<'_>, field: FieldId, kind: Checksum, addresses: u64) -> bool {
    let (bytes, Some((at, held))) = (header.bytes(), header.number_at(field)) else { return true };
    match kind {
        Checksum::Header => true,
        Checksum::Layer => fold(sum(bytes)) == 0xffff,
        Checksum::PseudoOrZero if held == 0 => true,
        Checksum::Pseudo | Checksum::PseudoOrZero => {
            // Its protocol number below, which is one byte.
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
