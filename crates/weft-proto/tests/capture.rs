//! Tests the reader and the writer of capture files.

use proptest::prelude::*;
use weft_core::Time;
use weft_proto::capture::{
    BLOCK_BYTES_MAX, ByteOrder, Fault, Format, LinkType, PACKET_BYTES_MAX, Packet, ReadError, Reader, Style,
    Unit, WriteError, Writer,
};

/// A packet: time, interface, link type, original length, bytes, comments.
type ReadPacket = (Option<Time>, u32, LinkType, u32, Vec<u8>, Vec<String>);

fn read(file: &[u8], piece: usize) -> (Vec<ReadPacket>, Result<u64, ReadError>) {
    let (mut reader, mut seen) = (Reader::new(), Vec::new());
    for piece in file.chunks(piece.max(1)) {
        reader.push(piece);
        loop {
            match reader.next() {
                Ok(Some(record)) => seen.push((
                    record.at,
                    record.interface,
                    record.link,
                    record.original_length,
                    record.bytes.to_vec(),
                    record.comments().map(str::to_owned).collect(),
                )),
                Ok(None) => break,
                Err(error) => {
                    assert_eq!(reader.next(), Err(error.clone()), "an error goes away");
                    return (seen, Err(error));
                }
            }
        }
    }
    let end = reader.finish();
    assert_eq!(reader.records(), seen.len() as u64);
    (seen, end)
}

fn styles() -> Vec<Style> {
    let orders = [ByteOrder::Little, ByteOrder::Big];
    let units = [Unit::Micros, Unit::Nanos];
    let of =
        |format| orders.into_iter().flat_map(move |order| units.map(|unit| Style { format, order, unit }));
    of(Format::Pcap).chain(of(Format::PcapNg)).collect()
}

fn hex(digits: &str) -> Vec<u8> {
    let digits: Vec<u8> = digits.bytes().filter(u8::is_ascii_hexdigit).collect();
    let text = |pair: &[u8]| u8::from_str_radix(core::str::from_utf8(pair).expect("digits"), 16);
    digits.chunks(2).map(|pair| text(pair).expect("digits")).collect()
}

#[test]
fn packets_round_trip_in_any_style() {
    // If this fails, files of other machines and tools cannot be replayed, or other tools cannot read ours.
    for style in styles() {
        let mut file = Vec::new();
        let mut writer = Writer::new(style, LinkType::RAW, "tun0", &mut file);
        let packets: [&[u8]; 4] = [b"", b"E", b"five!", &[7; 1500]];
        for (n, bytes) in packets.into_iter().enumerate() {
            let at = Time(1_700_000_000_123_456_789 + n as i64);
            let original_length = (n == 1).then_some(9000);
            let packet = Packet { at, bytes, original_length, ..Packet::default() };
            writer.write(&packet, &mut file).expect("it can be written");
        }
        for piece in [1, 3, 64, usize::MAX] {
            let (seen, end) = read(&file, piece);
            assert_eq!(end, Ok(4), "{style:?}");
            for (n, (at, interface, link, original, bytes, comments)) in seen.into_iter().enumerate() {
                let nanos = 1_700_000_000_123_456_789 + n as i64;
                let wanted = if style.unit == Unit::Micros { nanos / 1000 * 1000 } else { nanos };
                assert_eq!((at, interface, link), (Some(Time(wanted)), 0, LinkType::RAW), "{style:?}");
                assert_eq!(bytes, packets[n]);
                assert_eq!(original, if n == 1 { 9000 } else { bytes.len() as u32 });
                assert!(comments.is_empty());
            }
        }
    }
}

#[test]
fn frame_check_sequence_is_cut() {
    // If this fails, packets of captures with check sequences are four bytes too long.
    let write = |format| {
        let style = Style { format, order: ByteOrder::Little, unit: Unit::Nanos };
        let mut file = Vec::new();
        let mut writer = Writer::new(style, LinkType::ETHERNET, "", &mut file);
        let packets: [(&[u8], Option<u32>); 4] =
            [(b"0123456789", None), (b"01234", Some(9000)), (b"012345", Some(8)), (b"012", None)];
        for (bytes, original_length) in packets {
            let packet = Packet { bytes, original_length, ..Packet::default() };
            writer.write(&packet, &mut file).expect("it can be written");
        }
        file
    };
    let mut pcap = write(Format::Pcap);
    pcap[20..24].copy_from_slice(&(0x2400_0000_u32 | u32::from(LinkType::ETHERNET.0)).to_le_bytes());
    // Insert the option in front of all others of the interface.
    let with_option = |bits: u8| {
        let mut file = write(Format::PcapNg);
        let word = |file: &[u8], at: usize| u32::from_le_bytes(file[at..at + 4].try_into().expect("four"));
        let at = word(&file, 4) as usize;
        let length = word(&file, at + 4) + 8;
        file.splice(at + 16..at + 16, [13, 0, 1, 0, bits, 0, 0, 0]);
        file[at + 4..at + 8].copy_from_slice(&length.to_le_bytes());
        let end = at + length as usize;
        file[end - 4..end].copy_from_slice(&length.to_le_bytes());
        file
    };
    for file in [pcap, with_option(32), with_option(4)] {
        let (seen, end) = read(&file, 5);
        assert_eq!(end, Ok(4));
        let seen: Vec<_> =
            seen.iter().map(|(_, _, link, length, bytes, _)| (*link, *length, &bytes[..])).collect();
        let packets: [(u32, &[u8]); 4] = [(6, b"012345"), (8996, b"01234"), (4, b"0123"), (0, b"")];
        assert_eq!(seen, packets.map(|(length, bytes)| (LinkType::ETHERNET, length, bytes)));
    }
}

#[test]
fn comments_and_interfaces_survive() {
    // If this fails, an annotated capture loses its verdicts, or a packet its port.
    let mut file = Vec::new();
    let mut writer = Writer::new(Style::default(), LinkType::ETHERNET, "eth0", &mut file);
    let second = writer.interface(LinkType::RAW, "tun0", &mut file).expect("pcapng has several");
    let comments = ["firewall: DROP rule 7", "", "gr\u{fc}n"];
    let packet = Packet { interface: second, bytes: b"E", comments: &comments, ..Packet::default() };
    writer.write(&packet, &mut file).expect("it can be written");
    let (seen, end) = read(&file, 5);
    assert_eq!(end, Ok(1));
    assert_eq!((seen[0].1, seen[0].2), (1, LinkType::RAW));
    assert_eq!(seen[0].5, comments);

    let wrong = Packet { interface: 2, ..packet };
    assert_eq!(writer.write(&wrong, &mut file), Err(WriteError::NoInterface(2)));
    let long = vec![0; PACKET_BYTES_MAX + 1];
    let long = Packet { bytes: &long, ..packet };
    assert_eq!(writer.write(&long, &mut file), Err(WriteError::TooLong(PACKET_BYTES_MAX + 1)));
    let mut pcap =
        Writer::new(Style { format: Format::Pcap, ..Style::default() }, LinkType::RAW, "", &mut file);
    assert_eq!(pcap.interface(LinkType::RAW, "", &mut file), Err(WriteError::TooManyInterfaces));
}

#[test]
fn sections_may_differ_in_byte_order() {
    // If this fails, captures that were joined with `cat` are read only up to the first join.
    let mut file = Vec::new();
    for style in styles().into_iter().filter(|style| style.format == Format::PcapNg) {
        let mut writer = Writer::new(style, LinkType::ETHERNET, "a", &mut file);
        writer
            .write(&Packet { at: Time(5_000), bytes: b"one", ..Packet::default() }, &mut file)
            .expect("fits");
    }
    let (seen, end) = read(&file, 11);
    assert_eq!(end, Ok(4));
    let found: Vec<_> = seen.iter().map(|packet| (packet.0, packet.1)).collect();
    assert_eq!(found, [0, 1, 2, 3].map(|interface| (Some(Time(5_000)), interface)));
}

#[test]
fn specified_blocks_are_read() {
    // If this fails, files of other tools are misread: simple and obsolete packets, powers of two, time offsets,
    // unknown blocks.
    let section = "0a0d0d0a 0000001c 1a2b3c4d 0001 0000 ffffffffffffffff 0000001c";
    // Ethernet, snapshot length 4, if_tsresol 2^-10, if_tsoffset 100 s.
    let interface =
        "00000001 00000028 0001 0000 00000004 0009 0001 8a000000 000e 0008 0000000000000064 00000028";
    // 1,536 ticks of 1/1024 s.
    let enhanced = "00000006 00000024 00000000 00000000 00000600 00000003 00000009 61626300 00000024";
    let old = "00000002 00000024 0000 ffff 00000000 00000400 00000001 00000001 7a000000 00000024";
    // Nine bytes on the wire, of which the snapshot has four.
    let simple = "00000003 00000014 00000009 77787980 00000014";
    let unknown = "00000bad 00000014 deadbeef deadbeef 00000014";
    let file = hex(&[section, interface, unknown, enhanced, old, simple, unknown].concat());
    let ethernet = LinkType::ETHERNET;
    let time = |ms: i64| Some(Time(100_000_000_000 + ms * 1_000_000));
    let wanted = vec![
        (time(1_500), 0, ethernet, 9, b"abc".to_vec(), vec![]),
        (time(1_000), 0, ethernet, 1, b"z".to_vec(), vec![]),
        (None, 0, ethernet, 9, vec![0x77, 0x78, 0x79, 0x80], vec![]),
    ];
    for piece in [1, 6, 1000] {
        assert_eq!(read(&file, piece), (wanted.clone(), Ok(3)));
    }
}

#[test]
fn long_unknown_block_is_skipped() {
    // If this fails, a capture with TLS session keys cannot be read, or is buffered completely.
    let mut file = Vec::new();
    let mut writer = Writer::new(Style::default(), LinkType::RAW, "", &mut file);
    let length = (BLOCK_BYTES_MAX + (1 << 20)) as u32;
    file.extend(10_u32.to_le_bytes());
    file.extend(length.to_le_bytes());
    file.resize(file.len() + length as usize - 12, 0xee);
    let end = file.len();
    let have = u64::from(length) - 4;
    file.extend(length.to_le_bytes());
    writer.write(&Packet { bytes: b"E", ..Packet::default() }, &mut file).expect("it fits");
    for piece in [1 << 12, usize::MAX] {
        let (seen, end) = read(&file, piece);
        assert_eq!((seen.len(), end), (1, Ok(1)));
    }
    let cut = ReadError { at: end as u64, records: 0, fault: Fault::Cut { have } };
    assert_eq!(read(&file[..end], 4096), (vec![], Err(cut)));
}

#[test]
fn truncated_file_gives_whole_packets() {
    // If this fails, the capture of a crashed machine is lost, or its truncation is not reported.
    for style in styles() {
        let mut file = Vec::new();
        let mut writer = Writer::new(style, LinkType::RAW, "x", &mut file);
        let mut ends = vec![file.len()];
        for n in 0..3 {
            let packet = Packet { bytes: &[n; 10], comments: &["c"], ..Packet::default() };
            writer.write(&packet, &mut file).expect("it fits");
            ends.push(file.len());
        }
        for cut in 0..=file.len() {
            let (seen, end) = read(&file[..cut], 16);
            let whole = ends.iter().skip(1).filter(|end| **end <= cut).count();
            assert_eq!(seen.len(), whole, "{style:?} cut at {cut}");
            // A pcapng file may also end after the section header.
            if ends.contains(&cut) || style.format == Format::PcapNg && cut == 28 {
                assert_eq!(end, Ok(whole as u64));
                continue;
            }
            let error = end.expect_err("it is cut");
            assert_eq!((error.at, error.records), (cut as u64, whole as u64));
            let wanted = if cut == 0 { "is empty".to_owned() } else { format!("ends at byte {cut}, ") };
            assert!(error.to_string().contains(&wanted), "{error}");
        }
    }
}

#[test]
fn non_capture_is_refused() {
    // If this fails, the message about an unreadable file does not help.
    let shown = |file: &[u8]| read(file, 4096).1.expect_err("it is refused").to_string();
    assert_eq!(shown(b""), "the capture is empty");
    assert_eq!(shown(&[0x1f, 0x8b, 8, 0]), "it is compressed with gzip: unpack it first");
    assert_eq!(shown(b"CREATE"), "it is neither pcap nor pcapng: it begins with the bytes [43, 52, 45, 41]");
    let pcap = "d4c3b2a1 0200 0400 00000000 00000000 00000400 01000000";
    let long = hex(&[pcap, "00000000 00000000 01000400 01000400"].concat());
    assert_eq!(shown(&long), "record 1 at byte 24: a packet has 262145 bytes, more than 262144");
    let old = hex(&pcap.replace("0200 0400", "0300 0000"));
    assert_eq!(shown(&old), "the capture is of version 3.0, which is not known (byte 0)");

    let mut file = Vec::new();
    let mut writer = Writer::new(Style::default(), LinkType::RAW, "", &mut file);
    let start = file.len();
    writer.write(&Packet { bytes: b"E", ..Packet::default() }, &mut file).expect("it fits");
    let with = |at: usize, byte: u8| {
        let mut file = file.clone();
        file[start + at] = byte;
        shown(&file)
    };
    let at = format!("record 1 at byte {start}: ");
    let unknown = "a packet is of an interface that was not described";
    assert_eq!(with(8, 1), at.clone() + unknown);
    assert_eq!(with(20, 9), at.clone() + "a packet is longer than its block");
    let lengths = "the length of a block is less than 12 or no multiple of 4";
    assert_eq!((with(4, 8), with(4, 37)), (at.clone() + lengths, at.clone() + lengths));
    let ends = "the length at the end of a block is not the one at its beginning";
    assert_eq!(with(32, 7), at + ends);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// If this fails, bytes of a file can panic the reader, or the chunking of a file changes the result.
    #[test]
    fn chunking_does_not_change_packets(
        style in 0..8usize,
        packets in prop::collection::vec((any::<i64>(), prop::collection::vec(any::<u8>(), 0..50), ".{0,9}"), 0..6),
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 0..4),
        piece in 1..40usize,
    ) {
        let mut file = Vec::new();
        let mut writer = Writer::new(styles()[style], LinkType::ETHERNET, "eth0", &mut file);
        for (at, bytes, comment) in &packets {
            let comments = [comment.as_str()];
            let packet = Packet { at: Time(*at), bytes, comments: &comments, ..Packet::default() };
            writer.write(&packet, &mut file).expect("it fits");
        }
        for (at, byte) in changes {
            let at = at.index(file.len());
            file[at] ^= byte;
        }
        prop_assert_eq!(read(&file, piece), read(&file, usize::MAX));
    }
}

#[test]
fn file_name_gives_format() {
    // A user of `.pcap` has a tool that reads nothing else.
    for (name, format) in [
        ("a.pcap", Format::Pcap),
        ("/x/y.CAP", Format::Pcap),
        ("a.pcapng", Format::PcapNg),
        ("cap", Format::PcapNg),
        ("\u{e9}.cap", Format::Pcap),
        ("", Format::PcapNg),
    ] {
        assert_eq!(Style::of_name(name).format, format, "{name}");
    }
}
