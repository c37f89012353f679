//! Frames in the syntax of program tests: `ethernet(src=0x02..) ipv4(src='10.0.0.1' ttl=3) udp(dst_port=53) 'payload'
//! zeros(9)`.

use core::ops::Range;

use weft_core::Time;
use weft_core::abi::{Counters, Cx, EditTarget, Outcome, Slot, State, Verdict};
use weft_core::checksum::fold;
use weft_core::inputs::InputSet;
use weft_core::types::{Type, Value};
use weft_core::wire::header_change::{HeaderChange, Pop, StackValue, begins};
use weft_core::wire::{FieldValue, Header, Protocol, ProtocolId, Width, build};
use weft_ir::backend::Program;
use weft_ir::generate::{Observation, Observed};
use weft_ir::ir::Endian;
use weft_ir::program::{ChainProgram, FieldLayout, Frames};

use crate::vectors::Token;

/// A frame and its metadata: `port='wan'`.
pub(crate) struct FrameVector {
    pub(crate) bytes: Vec<u8>,
    pub(crate) known: Vec<(String, Token)>,
}

/// Builds the frame of tokens; `literal` converts a token to a value of a type.
pub(crate) fn said(
    protocols: &[Protocol],
    tokens: &[Token],
    literal: fn(&Token, Type) -> Value,
) -> FrameVector {
    let (mut headers, mut payload, mut known) = (Vec::new(), Vec::new(), Vec::new());
    let mut tokens = tokens;
    while let Some((first, rest)) = tokens.split_first() {
        tokens = match (first, rest) {
            (Token::Word(name), [Token::Sign('='), value, rest @ ..]) => {
                known.push((name.clone(), value.clone()));
                rest
            }
            (Token::Word(name), [Token::Sign('('), Token::Word(n), Token::Sign(')'), rest @ ..])
                if name == "zeros" =>
            {
                payload
                    .resize(payload.len() + n.parse::<usize>().expect("the number of zeros is a number"), 0);
                rest
            }
            (Token::Word(name), [Token::Sign('('), rest @ ..]) => {
                let end =
                    rest.iter().position(|token| *token == Token::Sign(')')).expect("a `)` closes a header");
                headers.push(header(protocols, name, &rest[..end], literal));
                &rest[end + 1..]
            }
            (Token::Text(text), rest) => {
                payload.extend_from_slice(text.as_bytes());
                rest
            }
            (Token::Word(hex), rest) => {
                let Value::Bytes(bytes) = literal(&Token::Word(hex.clone()), Type::Bytes(None)) else {
                    panic!("{hex} is not a payload")
                };
                payload.extend(bytes);
                rest
            }
            (other, _) => panic!("{other:?} is not part of a frame"),
        };
    }
    let bytes =
        build(protocols, &headers, &payload).unwrap_or_else(|error| panic!("{error:?} in {headers:?}"));
    FrameVector { bytes, known }
}

fn header(
    protocols: &[Protocol],
    name: &str,
    fields: &[Token],
    literal: fn(&Token, Type) -> Value,
) -> Header {
    let at = protocols.iter().position(|protocol| protocol.name == name);
    let at = at.unwrap_or_else(|| panic!("no protocol {name}"));
    let mut header = Header { protocol: ProtocolId(at as u16), ..Header::default() };
    for chunk in fields.chunks(3) {
        let [Token::Word(name), Token::Sign('='), value] = chunk else {
            panic!("`field=value` is wanted: {chunk:?}")
        };
        let id = protocols[at].field(name).unwrap_or_else(|| panic!("{} has no {name}", protocols[at].name));
        let field = &protocols[at].fields[usize::from(id.0)];
        let value = match (&field.width, literal(value, field.ty)) {
            (Width::Bits { .. }, Value::Bool(b)) => FieldValue::Number(u64::from(b)),
            (Width::Bits { .. }, Value::Int(n)) => FieldValue::Number(n as u64),
            (Width::Bytes { .. }, Value::Bytes(bytes)) => FieldValue::Bytes(bytes),
            (_, other) => panic!("{name} cannot be {other:?}"),
        };
        header.values.insert(id, value);
    }
    header
}

/// A frame after the edits of a pass: fields without checksums, and structure.
pub(crate) fn reshaped(
    chain: &ChainProgram,
    edits: &[(EditTarget, Observed)],
    slots: &[Slot],
    frame: &[u8],
) -> Vec<u8> {
    let (mut frame, mut parts) = (frame.to_vec(), Vec::new());
    for (target, value) in edits {
        match target {
            EditTarget::Part(_) => parts.push(value),
            EditTarget::HeaderChange(id) => {
                reshape(&chain.header_changes[usize::from(*id)].what, &parts, slots, &mut frame);
                parts.clear();
            }
            EditTarget::Input(id) => {
                let frames = chain.frames.as_ref().expect("the chain processes frames");
                let store = frames.field_writes[usize::from(*id)].as_ref().expect("the stack has a store");
                let (at, bytes) = written(frames, slots[usize::from(*id)], *id, value, &frame);
                let before = frame[at..at + bytes.len()].to_vec();
                frame[at..at + bytes.len()].copy_from_slice(&bytes);
                for sum in &store.sums {
                    assert!(
                        !sum.pseudo && sum.covers.is_empty(),
                        "a checksum follows that is not kept up here: {id}"
                    );
                    follow(&mut frame, slots[usize::from(sum.input)].b as usize, at, &before, &bytes);
                }
            }
            other => panic!("{other:?} does not change a frame"),
        }
    }
    frame
}

/// Converts what compiled code has written into the frame back to edits, where the interpreter has equal edits. All its
/// other writes are checksums.
pub(crate) fn unpatched(
    chain: &ChainProgram,
    (slots, present): (&[Slot], InputSet),
    interpreted: &Observation,
    compiled: &mut Observation,
) {
    let Some(frames) = &chain.frames else { return };
    let frame = core::mem::replace(&mut compiled.frame, interpreted.frame.clone());
    let sums = frames.field_writes.iter().flatten().flat_map(|store| &store.sums);
    let mut may_differ: Vec<Range<usize>> =
        sums.map(|sum| slots[usize::from(sum.input)].b as usize).map(|at| at..at + 2).collect();
    // A frame that is not forwarded stays unchanged.
    let goes_on = matches!(interpreted.verdict, Verdict::Forward | Verdict::Redirect);
    let mut own = core::mem::take(&mut compiled.edits).into_iter().peekable();
    for edit in &interpreted.edits {
        if own.next_if(|own| own == edit).is_none()
            && let (EditTarget::Input(id), value) = edit
        {
            let last = interpreted.edits.iter().rfind(|other| other.0 == edit.0);
            if goes_on && present.contains(*id) && last == Some(edit) {
                let (at, bytes) = written(frames, slots[usize::from(*id)], *id, value, &interpreted.frame);
                assert_eq!(&frame[at..at + bytes.len()], bytes, "the frame does not have {edit:?}");
                may_differ.push(at..at + bytes.len());
            }
        }
        compiled.edits.push(edit.clone());
    }
    compiled.edits.extend(own);
    assert_eq!(frame.len(), interpreted.frame.len());
    for (at, (new, old)) in frame.iter().zip(&interpreted.frame).enumerate() {
        let may_differ = may_differ.iter().any(|range| range.contains(&at));
        assert!(new == old || may_differ, "byte {at} of the frame has changed: {frame:x?}");
    }
}

/// The place of an input in the frame, and its bytes with a value.
fn written(frames: &Frames, slot: Slot, id: u16, value: &Observed, frame: &[u8]) -> (usize, Vec<u8>) {
    let at = frames.field_writes[usize::from(id)].as_ref().map(|store| store.at);
    match (at, value) {
        (Some(FieldLayout::Bytes), Observed::Bytes(bytes)) => (slot.a as usize, bytes.clone()),
        (Some(FieldLayout::Bits { bytes, shift, bits, endian }), Observed::Word(word)) => {
            let (at, bytes) = (slot.b as usize, usize::from(bytes));
            let order = |number: &mut [u8]| match endian {
                Endian::Little => number.reverse(),
                Endian::Big => {}
            };
            let mut number = [0; 8];
            number[8 - bytes..].copy_from_slice(&frame[at..at + bytes]);
            order(&mut number[8 - bytes..]);
            let mask = u64::MAX >> (64 - bits) << shift;
            let mut number = (u64::from_be_bytes(number) & !mask | word << shift & mask).to_be_bytes();
            order(&mut number[8 - bytes..]);
            (at, number[8 - bytes..].to_vec())
        }
        other => panic!("{other:?} is not a field that is written in place"),
    }
}

fn reshape(what: &HeaderChange, parts: &[&Observed], slots: &[Slot], frame: &mut Vec<u8>) {
    match what {
        HeaderChange::Cut => match parts {
            [Observed::Word(bytes)] => frame.truncate(*bytes as usize),
            other => panic!("{other:?} is not a number of bytes"),
        },
        HeaderChange::Fragment => {}
        HeaderChange::Pop { layer, how, .. } => {
            let slot = slots[usize::from(*layer)];
            let (at, bytes, end) =
                (slot.a as usize, (slot.b & 0xffff_ffff) as usize, (slot.b >> 32) as usize);
            match how {
                Pop::To => *frame = frame[at..end].to_vec(),
                Pop::Alone(relink) => {
                    let (from, to) = (at + usize::from(relink.within), at - usize::from(relink.back));
                    frame.copy_within(from..from + usize::from(relink.bytes), to);
                    frame.drain(at..at + bytes);
                }
            }
        }
        HeaderChange::Push { behind, stacks } => {
            let stack =
                stacks.iter().find(|stack| begins(frame, stack.begins)).expect("a stack matches the frame");
            let at = behind.map_or(0, |(header, _)| usize::from(header));
            frame.splice(at..at, vec![0; stack.bytes.len()]);
            let values = parts.iter().map(|part| match part {
                Observed::Word(n) => StackValue::Number(*n),
                Observed::Bytes(bytes) => StackValue::Bytes(bytes),
                other => panic!("{other:?} is in no header"),
            });
            let lower = behind.map(|(header, relink)| (usize::from(header - relink.back), relink));
            let said = lower.map(|(lower, relink)| frame[lower..lower + usize::from(relink.bytes)].to_vec());
            let told =
                lower.zip(said.as_deref()).map(|((_, relink), said)| (usize::from(relink.within), said));
            stack.write(&mut frame[at..], values, None, told).expect("the header fits");
            if let Some((lower, relink)) = lower {
                let n = usize::from(relink.bytes);
                frame[lower..lower + n].copy_from_slice(&relink.value.to_be_bytes()[8 - n..]);
            }
        }
    }
}

/// Updates a header checksum after bytes of the header have changed (RFC 1624).
fn follow(frame: &mut [u8], sum_at: usize, at: usize, before: &[u8], after: &[u8]) {
    let mut total = u64::from(!u16::from_be_bytes([frame[sum_at], frame[sum_at + 1]]));
    for (nth, (old, new)) in before.iter().zip(after).enumerate() {
        let shift = if (at + nth + sum_at).is_multiple_of(2) { 8 } else { 0 };
        total += 0xffff - (u64::from(*old) << shift) + (u64::from(*new) << shift);
    }
    frame[sum_at..sum_at + 2].copy_from_slice(&(!fold(total)).to_be_bytes());
}

/// The slots that a parser sets for a frame, and which are present.
pub(crate) fn parsed(chain: &ChainProgram, parser: &dyn Program, frame: &[u8]) -> (Vec<Slot>, InputSet) {
    let state = State::default();
    let mut given = vec![Slot::default(); chain.request.inputs.len()];
    let mut call = vec![0; chain.call_words()];
    let (mut out, mut counters) = (Outcome::default(), vec![Counters::default(); chain.elements.len() + 1]);
    let mut cx = Cx {
        given: &mut given,
        regions: [frame, &[], &[]],
        ..Cx::new(Time(0), &state, &mut call, &mut out, &mut counters)
    };
    parser.run(&mut cx, usize::MAX);
    let present = cx.present;
    let checks = &chain.frames.as_ref().expect("the chain processes frames").checks;
    let wrong = || &checks[out.line as usize];
    assert_eq!(out.verdict, Verdict::Forward, "the frame is malformed: {:?}", wrong());
    (given, present)
}
