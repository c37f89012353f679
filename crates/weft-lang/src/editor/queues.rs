//! Documentation of the predefined names in queues.

use crate::check::functions::of_queues;

/// A predefined name in a queue's handler: owner, name, type, and description.
pub(super) const PREDEFINED_NAMES: [(&str, &str, &str, &str); 23] = [
    ("p", "len", "SIZE", "The length of the packet in bytes; for a call, the length of a full frame."),
    ("p", "net_len", "SIZE", "The length from the network layer on, without the link header."),
    ("p", "arrived", "TIMESTAMP", "The arrival time of the packet."),
    ("p", "sojourn", "INTERVAL", "How long the packet has waited."),
    ("p", "id", "a whole number", "The packet's unique number."),
    ("p", "ecn", "a whole number", "The ECN codepoint, 0 to 3; can be set."),
    ("p", "flow", "a whole number", "A hash of addresses, ports and protocol; for a call, of its KEY."),
    ("p", "src", "a whole number", "A hash of the source address."),
    ("p", "dst", "a whole number", "A hash of the destination address; for a call, of its method."),
    ("p", "dscp", "a whole number", "The differentiated services codepoint, 0 to 63; can be set."),
    (
        "p",
        "class",
        "a whole number",
        "The class set by MARK in a chain, or by CLASS of a link for calls; can be set.",
    ),
    ("p", "remaining", "SIZE", "The remaining bytes of the message, 0 if unknown; can be set."),
    ("p", "slack", "INTERVAL", "How long the packet may still wait; can be set."),
    ("p", "deadline", "TIMESTAMP", "The deadline of the packet."),
    ("queue", "packets", "a whole number", "Packets in the queue; ON DEQUEUE without the current packet."),
    ("queue", "bytes", "SIZE", "Bytes in the queue; ON DEQUEUE without the current packet."),
    ("partition", "packets", "a whole number", "Packets in the current partition."),
    ("partition", "bytes", "SIZE", "Bytes in the current partition."),
    ("partition", "index", "a whole number", "The index of the current partition, from 0."),
    ("link", "rate", "a whole number", "The link's current rate in bits per second, 0 if unknown."),
    ("", "rank", "a whole number", "The rank of the current partition: the lowest goes first; can be set."),
    ("", "drops", "a whole number", "Packets that this dequeue has dropped from the partition so far."),
    ("", "p", "the current packet", "Its fields: `p.len`, `p.sojourn`, `p.class`, ..."),
];

/// The documentation of a name after an owner, or without one.
pub(super) fn doc_of(owner: &str, name: &str) -> Option<String> {
    let (of, name, ty, doc) =
        PREDEFINED_NAMES.iter().find(|(of, known, ..)| *of == owner && *known == name)?;
    let dot = if of.is_empty() { "" } else { "." };
    Some(format!("```weft\n{of}{dot}{name} {ty}\n```\n{doc}"))
}

/// The documentation of a queue function.
pub(super) fn doc_of_function(name: &str) -> Option<String> {
    let function = of_queues().find(|function| function.name().eq_ignore_ascii_case(name))?;
    Some(format!("```weft\n{}\n```\n{}", function.text, function.doc))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check::queue::names::PACKET_FIELDS;

    /// If this fails, an editor offers names that do not exist, or misses some.
    #[test]
    fn packet_field_docs_match_checker() {
        let documented: Vec<(&str, &str)> = PREDEFINED_NAMES
            .iter()
            .filter(|(of, ..)| *of == "p")
            .map(|(_, name, ty, _)| (*name, *ty))
            .collect();
        assert_eq!(documented.len(), PACKET_FIELDS.len() + 1);
        for (name, ty, can_be_set) in PACKET_FIELDS {
            assert!(documented.contains(&(name, ty.to_string().as_str())), "{name}");
            let (.., doc) = PREDEFINED_NAMES
                .iter()
                .find(|(of, known, ..)| *of == "p" && *known == name)
                .expect("it is there");
            assert_eq!(doc.ends_with("can be set."), can_be_set, "{name}");
        }
    }
}
