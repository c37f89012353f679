//! Writes and parses the text form of operations and terminators.

use super::source_lines::{SourceLine, quote, write_float};
use super::{ParseError, name_of, thing_of};
use crate::ir::*;
use core::fmt::Write as _;
use weft_core::Status;
use weft_core::marks::Mark;

const INT_OPS: &[(&str, IntOp)] = &[
    ("add", IntOp::Add),
    ("sub", IntOp::Sub),
    ("mul", IntOp::Mul),
    ("sdiv", IntOp::SDiv),
    ("udiv", IntOp::UDiv),
    ("srem", IntOp::SRem),
    ("urem", IntOp::URem),
    ("and", IntOp::And),
    ("or", IntOp::Or),
    ("xor", IntOp::Xor),
    ("shl", IntOp::Shl),
    ("shr", IntOp::Shr),
    ("smin", IntOp::SMin),
    ("smax", IntOp::SMax),
    ("umin", IntOp::UMin),
    ("umax", IntOp::UMax),
];

const INT_COMPARES: &[(&str, IntCmp)] = &[
    ("icmp.eq", IntCmp::Eq),
    ("icmp.ne", IntCmp::Ne),
    ("icmp.slt", IntCmp::SLt),
    ("icmp.sle", IntCmp::SLe),
    ("icmp.ult", IntCmp::ULt),
    ("icmp.ule", IntCmp::ULe),
];

const FLOAT_OPS: &[(&str, FloatOp)] = &[
    ("fadd", FloatOp::Add),
    ("fsub", FloatOp::Sub),
    ("fmul", FloatOp::Mul),
    ("fdiv", FloatOp::Div),
    ("fmin", FloatOp::Min),
    ("fmax", FloatOp::Max),
];

const FLOAT_UNARY: &[(&str, FloatUnaryOp)] = &[
    ("fneg", FloatUnaryOp::Neg),
    ("fabs", FloatUnaryOp::Abs),
    ("floor", FloatUnaryOp::Floor),
    ("ceil", FloatUnaryOp::Ceil),
    ("round", FloatUnaryOp::Round),
    ("sqrt", FloatUnaryOp::Sqrt),
];

const FLOAT_COMPARES: &[(&str, FloatCmp)] = &[
    ("fcmp.eq", FloatCmp::Eq),
    ("fcmp.ne", FloatCmp::Ne),
    ("fcmp.lt", FloatCmp::Lt),
    ("fcmp.le", FloatCmp::Le),
];

const BOOL_OPS: &[(&str, BoolOp)] =
    &[("bool.and", BoolOp::And), ("bool.or", BoolOp::Or), ("bool.xor", BoolOp::Xor)];

const BYTES_COMPARES: &[(&str, BytesCmp)] = &[
    ("bcmp.eq", BytesCmp::Eq),
    ("bcmp.ne", BytesCmp::Ne),
    ("bcmp.lt", BytesCmp::Lt),
    ("bcmp.le", BytesCmp::Le),
    ("bcmp.starts_with", BytesCmp::StartsWith),
    ("bcmp.ends_with", BytesCmp::EndsWith),
    ("bcmp.contains", BytesCmp::Contains),
    ("bcmp.like", BytesCmp::Like),
];

const BOOLS: &[(&str, bool)] = &[("true", true), ("false", false)];

/// Byte orders.
pub(super) const ENDIANS: &[(&str, Endian)] = &[("big", Endian::Big), ("little", Endian::Little)];

const SIGNS: &[(&str, Signed)] = &[("signed", Signed::Yes), ("unsigned", Signed::No)];

/// Operations outside the groups, without `.signed` or `.unsigned`.
const OTHERS: &[&str] = &[
    "bool",
    "int",
    "float",
    "bytes",
    "no_row",
    "in_range",
    "float_to_text",
    "bool_to_int",
    "not",
    "select",
    "len",
    "byte_at",
    "word_at",
    "part",
    "float_of_bits",
    "concat",
    "lower",
    "upper",
    "slice",
    "scratch_full",
    "hash",
    "hash_mix",
    "in_prefix",
    "in_prefixes",
    "native",
    "native_null",
    "native_failed",
    "frame_len",
    "frame_get.big",
    "frame_get.little",
    "frame_sum",
    "give",
    "now",
    "rand",
    "key",
    "is_row",
    "lock_vars",
    "delay",
    "mark.class",
    "mark.remaining",
    "mark.deadline",
    "mirror",
    "reshape",
    "roll_back",
    "input",
    "input_present",
    "set_input",
    "clear_input",
    "set_answer",
    "set_reply",
    "call_get",
    "var_get",
    "var_merged",
    "var_reset",
    "find",
    "match",
    "touch",
    "touch_read",
    "column",
    "column_is_null",
    "count",
    "scan_row",
    "scan_next",
    "departed",
    "lock",
    "emit",
];

const JOURNALLED: &[&str] =
    &["call_set", "var_set", "var_merge", "insert", "remove", "set_column", "set_column_null", "count_into"];

const CONVERSIONS: &[&str] =
    &["int_to_float", "float_to_int", "float_fits", "int_to_text", "is_int_text", "text_to_int"];

const ENDS: &[&str] =
    &["jump", "branch", "forward", "skip", "steer", "drop", "abort", "reply", "redirect", "fail"];

/// The mnemonics of all operations and terminators of well-formed functions.
pub fn mnemonics() -> Vec<String> {
    fn names<T>(table: &[(&'static str, T)]) -> Vec<&'static str> {
        table.iter().map(|(name, _)| *name).collect()
    }
    let grouped = [
        names(INT_OPS),
        names(INT_COMPARES),
        names(FLOAT_OPS),
        names(FLOAT_UNARY),
        names(FLOAT_COMPARES),
        names(BOOL_OPS),
        names(BYTES_COMPARES),
    ];
    let plain = grouped.concat().into_iter().chain(OTHERS.iter().chain(ENDS).copied()).map(String::from);
    let signed = CONVERSIONS.iter().map(|name| name.to_string());
    let signed = signed.chain(["add", "sub", "mul"].map(|op| format!("overflows.{op}")));
    let signed = signed.flat_map(|name| SIGNS.iter().map(move |(sign, _)| format!("{name}.{sign}")));
    let journalled = JOURNALLED.iter().flat_map(|name| [name.to_string(), format!("{name}.journal")]);
    plain.chain(signed).chain(["overflows.sdiv.signed".to_string()]).chain(journalled).collect()
}

/// Writes the mnemonic and the operands.
pub(super) fn write_op(out: &mut String, op: &Op) {
    let plain = |out: &mut String, name: &str| {
        out.push_str(name);
        values(out, " ", &op.operands());
    };
    let _ = match op {
        Op::BoolConst(b) => write!(out, "bool {b}"),
        Op::IntConst(n) => write!(out, "int {n}"),
        Op::FloatConst(f) => {
            out.push_str("float ");
            write_float(out, *f);
            Ok(())
        }
        Op::BytesConst(bytes) => {
            out.push_str("bytes ");
            quote(out, bytes);
            Ok(())
        }
        Op::InRange(v, low, high) => write!(out, "in_range v{}, {low}, {high}", v.0),
        Op::ByteAt(v, at) => write!(out, "byte_at v{}, {at}", v.0),
        Op::InPrefixes(v, prefixes) => {
            let _ = write!(out, "in_prefixes v{}", v.0);
            for prefix in prefixes {
                out.push_str(", ");
                quote(out, prefix);
            }
            Ok(())
        }
        Op::Overflows(op, signed, a, b) => {
            let (op, sign) = (name_of(INT_OPS, *op), name_of(SIGNS, *signed));
            write!(out, "overflows.{op}.{sign} v{}, v{}", a.0, b.0)
        }
        Op::Native(NativeId(n), args) => {
            let _ = write!(out, "native f{n}");
            values(out, ", ", args);
            Ok(())
        }
        Op::Input(InputId(n)) => write!(out, "input in{n}"),
        Op::Derived(InputId(n)) => write!(out, "derived in{n}"),
        Op::InputPresent(InputId(n)) => write!(out, "input_present in{n}"),
        Op::SetInput(InputId(n), v) => write!(out, "set_input in{n}, v{}", v.0),
        Op::ClearInput(InputId(n)) => write!(out, "clear_input in{n}"),
        Op::SetAnswer(NameId(n), v) => write!(out, "set_answer n{n}, v{}", v.0),
        Op::SetReply(NameId(n), v) => write!(out, "set_reply n{n}, v{}", v.0),
        Op::ChangeHeaders(HeaderChangeId(n), args) => {
            let _ = write!(out, "reshape r{n}");
            values(out, ", ", args);
            Ok(())
        }
        Op::Rand(site) => write!(out, "rand {site}"),
        Op::CallGet(CallId(n)) => write!(out, "call_get call{n}"),
        Op::CallSet(CallId(n), v, j) => write!(out, "call_set{} call{n}, v{}", journal(*j), v.0),
        Op::VarGet(VarId(n)) => write!(out, "var_get var{n}"),
        Op::VarSet(VarId(n), v, j) => write!(out, "var_set{} var{n}, v{}", journal(*j), v.0),
        Op::VarMerge(VarId(n), v, j) => write!(out, "var_merge{} var{n}, v{}", journal(*j), v.0),
        Op::VarMerged(VarId(n)) => write!(out, "var_merged var{n}"),
        Op::VarReset(VarId(n)) => write!(out, "var_reset var{n}"),
        Op::Find(TableId(t), v) => write!(out, "find t{t}, v{}", v.0),
        Op::Match(TableId(t), MatchId(m), keys) => {
            let _ = write!(out, "match t{t}, m{m}");
            write_cells(out, keys);
            Ok(())
        }
        Op::Insert(TableId(t), v, j) => write!(out, "insert{} t{t}, v{}", journal(*j), v.0),
        Op::Remove(TableId(t), v, j) => write!(out, "remove{} t{t}, v{}", journal(*j), v.0),
        Op::Touch(TableId(t), v) => write!(out, "touch t{t}, v{}", v.0),
        Op::TouchRead(TableId(t), v) => write!(out, "touch_read t{t}, v{}", v.0),
        Op::Column(TableId(t), v, ColumnId(c)) => write!(out, "column t{t}, v{}, c{c}", v.0),
        Op::ColumnIsNull(TableId(t), v, ColumnId(c)) => write!(out, "column_is_null t{t}, v{}, c{c}", v.0),
        Op::SetColumn(TableId(t), row, ColumnId(c), v, j) => {
            write!(out, "set_column{} t{t}, v{}, c{c}, v{}", journal(*j), row.0, v.0)
        }
        Op::SetColumnNull(TableId(t), row, ColumnId(c), j) => {
            write!(out, "set_column_null{} t{t}, v{}, c{c}", journal(*j), row.0)
        }
        Op::CountInto(TableId(t), row, ColumnId(c), v, j) => {
            write!(out, "count_into{} t{t}, v{}, c{c}, v{}", journal(*j), row.0, v.0)
        }
        Op::Count(TableId(t)) => write!(out, "count t{t}"),
        Op::ScanRow(TableId(t), v) => write!(out, "scan_row t{t}, v{}", v.0),
        Op::ScanNext(TableId(t), v) => write!(out, "scan_next t{t}, v{}", v.0),
        Op::ExpiredRow(TableId(t)) => write!(out, "departed t{t}"),
        Op::Lock(TableId(t), None) => write!(out, "lock t{t}"),
        Op::Lock(TableId(t), Some(v)) => write!(out, "lock t{t}, v{}", v.0),
        Op::Emit(SinkId(s), cells) => {
            let _ = write!(out, "emit s{s}");
            write_cells(out, cells);
            Ok(())
        }
        Op::IntBinary(op, ..) => return plain(out, name_of(INT_OPS, *op)),
        Op::IntCompare(op, ..) => return plain(out, name_of(INT_COMPARES, *op)),
        Op::FloatBinary(op, ..) => return plain(out, name_of(FLOAT_OPS, *op)),
        Op::FloatUnary(op, _) => return plain(out, name_of(FLOAT_UNARY, *op)),
        Op::FloatCompare(op, ..) => return plain(out, name_of(FLOAT_COMPARES, *op)),
        Op::BoolBinary(op, ..) => return plain(out, name_of(BOOL_OPS, *op)),
        Op::BytesCompare(op, ..) => return plain(out, name_of(BYTES_COMPARES, *op)),
        Op::IntToFloat(s, _) => return plain(out, &format!("int_to_float.{}", name_of(SIGNS, *s))),
        Op::FloatToInt(s, _) => return plain(out, &format!("float_to_int.{}", name_of(SIGNS, *s))),
        Op::FloatFits(s, _) => return plain(out, &format!("float_fits.{}", name_of(SIGNS, *s))),
        Op::IntToText(s, _) => return plain(out, &format!("int_to_text.{}", name_of(SIGNS, *s))),
        Op::IsIntText(s, _) => return plain(out, &format!("is_int_text.{}", name_of(SIGNS, *s))),
        Op::TextToInt(s, _) => return plain(out, &format!("text_to_int.{}", name_of(SIGNS, *s))),
        Op::FloatToText(_) => return plain(out, "float_to_text"),
        Op::IsFloatText(_) => return plain(out, "is_float_text"),
        Op::TextToFloat(_) => return plain(out, "text_to_float"),
        Op::BoolToInt(_) => return plain(out, "bool_to_int"),
        Op::Not(_) => return plain(out, "not"),
        Op::Select(..) => return plain(out, "select"),
        Op::Len(_) => return plain(out, "len"),
        Op::WordAt(..) => return plain(out, "word_at"),
        Op::Part(..) => return plain(out, "part"),
        Op::FloatOfBits(_) => return plain(out, "float_of_bits"),
        Op::Concat(_) => return plain(out, "concat"),
        Op::Lower(_) => return plain(out, "lower"),
        Op::Upper(_) => return plain(out, "upper"),
        Op::Slice(..) => return plain(out, "slice"),
        Op::ScratchFull => return plain(out, "scratch_full"),
        Op::Egress => return plain(out, "egress"),
        Op::Hash(_) => return plain(out, "hash"),
        Op::HashMix(..) => return plain(out, "hash_mix"),
        Op::InPrefix(..) => return plain(out, "in_prefix"),
        Op::NativeNull(_) => return plain(out, "native_null"),
        Op::NativeFailed(_) => return plain(out, "native_failed"),
        Op::NoRow => return plain(out, "no_row"),
        Op::FrameLen => return plain(out, "frame_len"),
        Op::FrameGet(at, bytes, endian) => {
            let endian = name_of(ENDIANS, *endian);
            write!(out, "frame_get.{endian} v{}, {bytes}", at.0)
        }
        Op::FrameSum(..) => return plain(out, "frame_sum"),
        Op::Give(InputId(n), a, None) => write!(out, "give in{n}, v{}", a.0),
        Op::Give(InputId(n), a, Some(b)) => write!(out, "give in{n}, v{}, v{}", a.0, b.0),
        Op::Now => return plain(out, "now"),
        Op::Key(_) => return plain(out, "key"),
        Op::IsRow(_) => return plain(out, "is_row"),
        Op::LockVars => return plain(out, "lock_vars"),
        Op::Delay(_) => return plain(out, "delay"),
        Op::Mark(what, value) => write!(out, "mark.{} v{}", what.name(), value.0),
        Op::Mirror(_) => return plain(out, "mirror"),
        Op::RollBack => return plain(out, "roll_back"),
    };
}

/// The suffix of a mnemonic: `.journal` if the write is journalled, else empty.
fn journal(journal: Journal) -> &'static str {
    match journal {
        Journal::Yes => ".journal",
        Journal::No => "",
    }
}

/// Writes values separated by commas, with `before` in front of the first; writes nothing for none.
fn values(out: &mut String, before: &str, values: &[Value]) {
    for (i, value) in values.iter().enumerate() {
        let _ = write!(out, "{}v{}", if i == 0 { before } else { ", " }, value.0);
    }
}

/// Writes a terminator, with its source line as a comment.
pub(super) fn write_end(out: &mut String, end: &Terminator) {
    let jump = |out: &mut String, jump: &Jump| {
        let _ = write!(out, "block{}", jump.block.0);
        if !jump.args.is_empty() {
            values(out, "(", &jump.args);
            out.push(')');
        }
    };
    let _ = match end {
        Terminator::Missing => write!(out, "missing"),
        Terminator::Jump(to) => {
            out.push_str("jump ");
            jump(out, to);
            Ok(())
        }
        Terminator::Branch(by, yes, no) => {
            let _ = write!(out, "branch v{}, ", by.0);
            jump(out, yes);
            out.push_str(", ");
            jump(out, no);
            Ok(())
        }
        Terminator::Forward => write!(out, "forward"),
        Terminator::Skip => write!(out, "skip"),
        Terminator::Steer { .. } => write!(out, "steer"),
        Terminator::Drop { .. } => write!(out, "drop"),
        Terminator::Abort { status, text, .. } => {
            let _ = match status {
                StatusOperand::Known(status) => write!(out, "abort {status}"),
                StatusOperand::Computed(code) => write!(out, "abort v{}", code.0),
            };
            text.iter().for_each(|text| values(out, ", ", &[*text]));
            Ok(())
        }
        Terminator::Reply { .. } => write!(out, "reply"),
        Terminator::Redirect { to, .. } => write!(out, "redirect v{}", to.0),
        Terminator::Fail { fault, .. } => write!(out, "fail v{}", fault.0),
    };
}

/// Reads a terminator; None if the line is an instruction.
pub(super) fn parse_end(line: &mut SourceLine<'_>) -> Result<Option<Terminator>, ParseError> {
    let source_line = line.source_line;
    let word = line.peek_word().to_string();
    let end = match word.as_str() {
        "missing" => Terminator::Missing,
        "forward" => Terminator::Forward,
        "skip" => Terminator::Skip,
        "steer" => Terminator::Steer { line: source_line },
        "drop" => Terminator::Drop { line: source_line },
        "reply" => Terminator::Reply { line: source_line },
        "jump" | "branch" | "abort" | "redirect" | "fail" => {
            line.keyword(&word)?;
            return operands_of_end(line, &word).map(Some);
        }
        _ => return Ok(None),
    };
    line.keyword(&word)?;
    Ok(Some(end))
}

/// Parses the operands of the terminator with the mnemonic `word`.
fn operands_of_end(line: &mut SourceLine<'_>, word: &str) -> Result<Terminator, ParseError> {
    let source_line = line.source_line;
    Ok(match word {
        "jump" => Terminator::Jump(parse_jump(line)?),
        "branch" => {
            let by = line.value()?;
            line.expect(',')?;
            let yes = parse_jump(line)?;
            line.expect(',')?;
            Terminator::Branch(by, yes, parse_jump(line)?)
        }
        "abort" => {
            let status = if line.is_value() {
                StatusOperand::Computed(line.value()?)
            } else {
                let name = line.peek_word().to_string();
                let status = Status::from_name(&name).ok_or_else(|| line.error("a status"))?;
                line.keyword(&name)?;
                StatusOperand::Known(status)
            };
            let text = if line.eat(',') { Some(line.value()?) } else { None };
            Terminator::Abort { status, text, line: source_line }
        }
        "redirect" => Terminator::Redirect { to: line.value()?, line: source_line },
        _ => Terminator::Fail { fault: line.value()?, line: source_line },
    })
}

/// Parses a jump: a block and, in parentheses, its arguments.
fn parse_jump(line: &mut SourceLine<'_>) -> Result<Jump, ParseError> {
    let block = BlockId(line.id("block")?);
    let mut args = Vec::new();
    if line.eat('(') {
        args = line.values()?;
        line.expect(')')?;
    }
    Ok(Jump { block, args })
}

/// Parses an operation: the mnemonic and the operands.
pub(super) fn parse_op(line: &mut SourceLine<'_>) -> Result<Op, ParseError> {
    let at_word = line.error("an operation");
    let word = line.word("an operation")?;
    let (name, j) = match word.strip_suffix(".journal") {
        Some(name) => (name, Journal::Yes),
        None => (word.as_str(), Journal::No),
    };
    let op = match parse_grouped(line, name)? {
        Some(op) => Some(op),
        None => match parse_simple(line, name)? {
            Some(op) => Some(op),
            None => parse_stateful(line, name, j)?,
        },
    };
    let takes_journal = matches!(
        op,
        Some(
            Op::CallSet(..)
                | Op::VarSet(..)
                | Op::VarMerge(..)
                | Op::Insert(..)
                | Op::Remove(..)
                | Op::SetColumn(..)
                | Op::SetColumnNull(..)
                | Op::CountInto(..)
        )
    );
    op.filter(|_| takes_journal || j == Journal::No).ok_or(at_word)
}

/// Parses an operation of a group, such as `add`, `icmp.eq` or `overflows.add.signed`; None if `name` is not one.
fn parse_grouped(line: &mut SourceLine<'_>, name: &str) -> Result<Option<Op>, ParseError> {
    if let Some(op) = thing_of(INT_OPS, name) {
        return pair(line).map(|(a, b)| Some(Op::IntBinary(op, a, b)));
    }
    if let Some(op) = thing_of(INT_COMPARES, name) {
        return pair(line).map(|(a, b)| Some(Op::IntCompare(op, a, b)));
    }
    if let Some(op) = thing_of(FLOAT_OPS, name) {
        return pair(line).map(|(a, b)| Some(Op::FloatBinary(op, a, b)));
    }
    if let Some(op) = thing_of(FLOAT_COMPARES, name) {
        return pair(line).map(|(a, b)| Some(Op::FloatCompare(op, a, b)));
    }
    if let Some(op) = thing_of(BOOL_OPS, name) {
        return pair(line).map(|(a, b)| Some(Op::BoolBinary(op, a, b)));
    }
    if let Some(op) = thing_of(BYTES_COMPARES, name) {
        return pair(line).map(|(a, b)| Some(Op::BytesCompare(op, a, b)));
    }
    if let Some(op) = thing_of(FLOAT_UNARY, name) {
        return line.value().map(|a| Some(Op::FloatUnary(op, a)));
    }
    let Some((rest, sign)) = name.rsplit_once('.') else { return Ok(None) };
    if let Some(endian) = thing_of(ENDIANS, sign).filter(|_| rest == "frame_get") {
        let at = line.value()?;
        line.expect(',')?;
        return Ok(Some(Op::FrameGet(at, line.number()?, endian)));
    }
    if let Some(what) = Mark::named(sign).filter(|_| rest == "mark") {
        return Ok(Some(Op::Mark(what, line.value()?)));
    }
    let Some(signed) = thing_of(SIGNS, sign) else { return Ok(None) };
    if let Some(op) = rest.strip_prefix("overflows.").and_then(|op| thing_of(INT_OPS, op)) {
        return pair(line).map(|(a, b)| Some(Op::Overflows(op, signed, a, b)));
    }
    let make: fn(Signed, Value) -> Op = match rest {
        "int_to_float" => Op::IntToFloat,
        "float_to_int" => Op::FloatToInt,
        "float_fits" => Op::FloatFits,
        "int_to_text" => Op::IntToText,
        "is_int_text" => Op::IsIntText,
        "text_to_int" => Op::TextToInt,
        _ => return Ok(None),
    };
    line.value().map(|v| Some(make(signed, v)))
}

/// Parses an operation on constants and values; None if `name` is not one.
fn parse_simple(line: &mut SourceLine<'_>, name: &str) -> Result<Option<Op>, ParseError> {
    Ok(Some(match name {
        "bool" => Op::BoolConst(line.one_of(BOOLS, "`true` or `false`")?),
        "int" => Op::IntConst(line.number()?),
        "float" => Op::FloatConst(line.float()?),
        "bytes" => Op::BytesConst(line.bytes()?),
        "no_row" => Op::NoRow,
        "in_range" => {
            let v = line.value()?;
            line.expect(',')?;
            let low = line.number()?;
            line.expect(',')?;
            Op::InRange(v, low, line.number()?)
        }
        "float_to_text" => Op::FloatToText(line.value()?),
        "is_float_text" => Op::IsFloatText(line.value()?),
        "text_to_float" => Op::TextToFloat(line.value()?),
        "bool_to_int" => Op::BoolToInt(line.value()?),
        "not" => Op::Not(line.value()?),
        "select" => triple(line).map(|(a, b, c)| Op::Select(a, b, c))?,
        "len" => Op::Len(line.value()?),
        "byte_at" => {
            let v = line.value()?;
            line.expect(',')?;
            Op::ByteAt(v, line.number()?)
        }
        "word_at" => pair(line).map(|(a, b)| Op::WordAt(a, b))?,
        "part" => triple(line).map(|(a, b, c)| Op::Part(a, b, c))?,
        "float_of_bits" => Op::FloatOfBits(line.value()?),
        "concat" => Op::Concat(line.values()?),
        "lower" => Op::Lower(line.value()?),
        "upper" => Op::Upper(line.value()?),
        "slice" => triple(line).map(|(a, b, c)| Op::Slice(a, b, c))?,
        "scratch_full" => Op::ScratchFull,
        "egress" => Op::Egress,
        "hash" => Op::Hash(line.value()?),
        "hash_mix" => pair(line).map(|(a, b)| Op::HashMix(a, b))?,
        "in_prefix" => pair(line).map(|(a, b)| Op::InPrefix(a, b))?,
        "in_prefixes" => {
            let (v, mut prefixes) = (line.value()?, Vec::new());
            while line.eat(',') {
                prefixes.push(line.bytes()?);
            }
            Op::InPrefixes(v, prefixes)
        }
        "native_null" => Op::NativeNull(line.value()?),
        "native_failed" => Op::NativeFailed(line.value()?),
        "frame_len" => Op::FrameLen,
        "frame_sum" => pair(line).map(|(a, b)| Op::FrameSum(a, b))?,
        "give" => {
            let input = InputId(line.id("in")?);
            line.expect(',')?;
            let value = line.value()?;
            Op::Give(input, value, if line.eat(',') { Some(line.value()?) } else { None })
        }
        "now" => Op::Now,
        "rand" => Op::Rand(line.number()?),
        "key" => Op::Key(line.values()?),
        "is_row" => Op::IsRow(line.value()?),
        "lock_vars" => Op::LockVars,
        "delay" => Op::Delay(line.value()?),
        "mirror" => Op::Mirror(line.value()?),
        "roll_back" => Op::RollBack,
        _ => return Ok(None),
    }))
}

/// Parses an operation on declarations of the chain, such as inputs and tables; None if `name` is not one.
fn parse_stateful(line: &mut SourceLine<'_>, name: &str, j: Journal) -> Result<Option<Op>, ParseError> {
    Ok(Some(match name {
        "native" => {
            let id = NativeId(line.id("f")?);
            Op::Native(id, if line.eat(',') { line.values()? } else { Vec::new() })
        }
        "input" => Op::Input(InputId(line.id("in")?)),
        "derived" => Op::Derived(InputId(line.id("in")?)),
        "input_present" => Op::InputPresent(InputId(line.id("in")?)),
        "set_input" => Op::SetInput(InputId(line.id("in")?), then_value(line)?),
        "clear_input" => Op::ClearInput(InputId(line.id("in")?)),
        "set_answer" => Op::SetAnswer(NameId(line.id("n")?), then_value(line)?),
        "set_reply" => Op::SetReply(NameId(line.id("n")?), then_value(line)?),
        "reshape" => {
            let id = HeaderChangeId(line.id("r")?);
            Op::ChangeHeaders(id, if line.eat(',') { line.values()? } else { Vec::new() })
        }
        "call_get" => Op::CallGet(CallId(line.id("call")?)),
        "call_set" => Op::CallSet(CallId(line.id("call")?), then_value(line)?, j),
        "var_get" => Op::VarGet(VarId(line.id("var")?)),
        "var_set" => Op::VarSet(VarId(line.id("var")?), then_value(line)?, j),
        "var_merge" => Op::VarMerge(VarId(line.id("var")?), then_value(line)?, j),
        "var_merged" => Op::VarMerged(VarId(line.id("var")?)),
        "var_reset" => Op::VarReset(VarId(line.id("var")?)),
        "find" => Op::Find(table(line)?, then_value(line)?),
        "match" => {
            let table = table(line)?;
            line.expect(',')?;
            Op::Match(table, MatchId(line.id("m")?), parse_cells(line)?)
        }
        "insert" => Op::Insert(table(line)?, then_value(line)?, j),
        "remove" => Op::Remove(table(line)?, then_value(line)?, j),
        "touch" => Op::Touch(table(line)?, then_value(line)?),
        "touch_read" => Op::TouchRead(table(line)?, then_value(line)?),
        "column" => Op::Column(table(line)?, then_value(line)?, then_column(line)?),
        "column_is_null" => Op::ColumnIsNull(table(line)?, then_value(line)?, then_column(line)?),
        "set_column" => {
            Op::SetColumn(table(line)?, then_value(line)?, then_column(line)?, then_value(line)?, j)
        }
        "set_column_null" => Op::SetColumnNull(table(line)?, then_value(line)?, then_column(line)?, j),
        "count_into" => {
            Op::CountInto(table(line)?, then_value(line)?, then_column(line)?, then_value(line)?, j)
        }
        "count" => Op::Count(table(line)?),
        "scan_row" => Op::ScanRow(table(line)?, then_value(line)?),
        "departed" => Op::ExpiredRow(table(line)?),
        "scan_next" => Op::ScanNext(table(line)?, then_value(line)?),
        "lock" => {
            let table = table(line)?;
            Op::Lock(table, if line.is_at_end() { None } else { Some(then_value(line)?) })
        }
        "emit" => {
            let sink = SinkId(line.id("s")?);
            Op::Emit(sink, parse_cells(line)?)
        }
        _ => return Ok(None),
    }))
}

/// Writes each cell's value, with its NULL flag if it has one.
fn write_cells(out: &mut String, cells: &[(Value, Option<Value>)]) {
    for (cell, null) in cells {
        let _ = write!(out, ", v{}", cell.0);
        if let Some(null) = null {
            let _ = write!(out, " null v{}", null.0);
        }
    }
}

/// Parses values after commas, each with an optional NULL flag.
fn parse_cells(line: &mut SourceLine<'_>) -> Result<Vec<(Value, Option<Value>)>, ParseError> {
    let mut cells = Vec::new();
    while line.eat(',') {
        let cell = line.value()?;
        let null = if line.eat_word("null") { Some(line.value()?) } else { None };
        cells.push((cell, null));
    }
    Ok(cells)
}

/// Parses two values separated by a comma.
fn pair(line: &mut SourceLine<'_>) -> Result<(Value, Value), ParseError> {
    Ok((line.value()?, then_value(line)?))
}

/// Parses three values separated by commas.
fn triple(line: &mut SourceLine<'_>) -> Result<(Value, Value, Value), ParseError> {
    Ok((line.value()?, then_value(line)?, then_value(line)?))
}

/// Parses a comma and a value.
fn then_value(line: &mut SourceLine<'_>) -> Result<Value, ParseError> {
    line.expect(',')?;
    line.value()
}

fn table(line: &mut SourceLine<'_>) -> Result<TableId, ParseError> {
    line.id("t").map(TableId)
}

/// Parses a comma and a column.
fn then_column(line: &mut SourceLine<'_>) -> Result<ColumnId, ParseError> {
    line.expect(',')?;
    line.id("c").map(ColumnId)
}
