//! Functions that compiled code calls.
//!
//! Each takes at most six words, so that all arguments travel in registers; a [`Bytes`] is passed as two words. None
//! unwinds into compiled code: `extern "C"` turns a panic into an abort.

use crate::frame::{self, Frame, copy_short};
use crate::text;
use crate::translate::verdict;
use core::sync::atomic::AtomicU64;
use cranelift_codegen::ir::{Type, types};
use std::sync::Arc;
use weft_core::abi::{Cx, EditTarget, Fault, Rewrite, ShortName, Verdict};
use weft_core::classify::WORDS_MAX;
use weft_core::frame::{Offload, packet_size as size_of_packet};
use weft_core::limits::ROW_BYTES_MAX;
use weft_core::marks::Mark;
use weft_core::matching::{Key, MatchedRow, Matcher};
use weft_core::native::{Arg, Call, Ended, NATIVE_ARGS_MAX};
use weft_core::table::{ColumnRef, Insert, Row, Table};
use weft_core::wire::Formats;
use weft_core::{Status, Time};
use weft_core::{checksum, flow, hash};
use weft_ir::program::Merge;

/// A run of bytes that stays valid until the pass ends.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct Bytes {
    pub(crate) start: *const u8,
    pub(crate) len: u64,
}

impl Bytes {
    const EMPTY: Self = Self { start: core::ptr::dangling(), len: 0 };

    fn of(bytes: &[u8]) -> Self {
        Self { start: bytes.as_ptr(), len: bytes.len() as u64 }
    }

    /// The bytes as a slice, valid for the rest of the call.
    pub(crate) fn as_slice<'a>(self) -> &'a [u8] {
        if self.len == 0 {
            return &[];
        }
        // SAFETY: compiled code makes a `Bytes` from a slot that it has checked against its region, from a constant of
        // its program, from the scratch (which does not move in a pass), or from the cell of a row that is not written
        // while the value is in use. All of them outlive the call.
        unsafe { core::slice::from_raw_parts(self.start, self.len as usize) }
    }
}

/// A row and the address of its first group; [`ZERO_ROW`] for no row.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub(crate) struct RowRef {
    pub(crate) row: u64,
    pub(crate) address: u64,
}

/// Bytes of a [`RowRef`], whose first word is the row.
pub(crate) const ROW_REF_BYTES: u32 = size_of::<RowRef>() as u32;

impl RowRef {
    #[inline(always)]
    fn new(table: &Table, row: Row) -> Self {
        let address = if row.is_none() { ZERO_ROW.address() } else { table.row_address(row, 0) as u64 };
        Self { row: row.0, address }
    }

    /// The handle and address of a found row; the address of zeros if there is none.
    #[inline(always)]
    fn found(found: Option<(Row, &[AtomicU64])>) -> Self {
        match found {
            Some((row, words)) => Self { row: row.0, address: words.as_ptr().expose_provenance() as u64 },
            None => Self { row: Row::NONE.0, address: ZERO_ROW.address() },
        }
    }

    /// The handle and address of a matched row; the address of zeros if there is none.
    #[inline(always)]
    pub(crate) fn matched(found: MatchedRow) -> Self {
        match found {
            MatchedRow { row: Row::NONE, .. } => Self { row: Row::NONE.0, address: ZERO_ROW.address() },
            MatchedRow { row, address } => Self { row: row.0, address: address as u64 },
        }
    }
}

/// The contents of a missing row: every column reads as zero, without a branch.
pub(crate) struct ZeroRow([AtomicU64; ZERO_ROW_WORDS]);

/// Words of the longest row.
pub(crate) const ZERO_ROW_WORDS: usize = ROW_BYTES_MAX / 8;

/// See [`ZeroRow`]. It is never written.
pub(crate) static ZERO_ROW: ZeroRow = ZeroRow([const { AtomicU64::new(0) }; ZERO_ROW_WORDS]);

impl ZeroRow {
    pub(crate) fn address(&self) -> u64 {
        self.0.as_ptr().expose_provenance() as u64
    }
}

/// A value of any type, as an argument of a helper.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Cell {
    tag: u64,
    a: u64,
    b: u64,
}

/// The layout of [`weft_core::abi::Cell`]. Compiled code builds the cells of edits and sink rows in this layout.
pub(crate) mod sink_cell {
    use weft_ir::ir::Ty;

    /// The offset of the value; the tag is at 0.
    pub(crate) const VALUE: i32 = 8;
    pub(crate) const NULL: i64 = 0;
    pub(crate) const BOOL: i64 = 1;
    pub(crate) const INT: i64 = 2;
    pub(crate) const FLOAT: i64 = 3;
    pub(crate) const RANGE: i64 = 4;

    /// The tag of a value.
    pub(crate) fn of(ty: Ty) -> i64 {
        match ty {
            Ty::Bytes => RANGE,
            Ty::Bool => BOOL,
            Ty::Float => FLOAT,
            Ty::Int | Ty::Row => INT,
        }
    }

    const _: () = assert!(
        size_of::<weft_core::abi::Cell>() == 16,
        "the tag takes a word, and so does the longest value"
    );
}

/// Bytes of a [`Cell`].
pub(crate) const CELL_BYTES: u32 = size_of::<Cell>() as u32;

/// [`Cell::tag`]: the type of the value.
pub(crate) mod tag {
    pub(crate) const BOOL: u64 = 0;
    pub(crate) const INT: u64 = 1;
    pub(crate) const FLOAT: u64 = 2;
    pub(crate) const BYTES: u64 = 3;
    pub(crate) const NULL: u64 = 4;
}

impl Cell {
    pub(crate) const TAG: i32 = core::mem::offset_of!(Self, tag) as i32;
    pub(crate) const A: i32 = core::mem::offset_of!(Self, a) as i32;
    pub(crate) const B: i32 = core::mem::offset_of!(Self, b) as i32;

    #[inline(always)]
    fn bytes(&self) -> Bytes {
        Bytes { start: core::ptr::with_exposed_provenance(self.a as usize), len: self.b }
    }
}

/// The cells that compiled code has put on its stack.
fn cells<'a>(start: *const Cell, n: u64) -> &'a [Cell] {
    // SAFETY: compiled code passes the address of a stack slot in which it has just stored `n` cells, and it waits for
    // the helper to return.
    unsafe { core::slice::from_raw_parts(start, n as usize) }
}

/// What an edit changes, in the layout of an [`EditTarget`]: the kind in the lower half, the index in the upper.
pub(crate) mod target {
    use super::EditTarget;

    pub(crate) const fn input(index: u16) -> u32 {
        (index as u32) << 16
    }

    pub(crate) const fn answer(index: u16) -> u32 {
        1 | (index as u32) << 16
    }

    pub(crate) const fn reply(index: u16) -> u32 {
        2 | (index as u32) << 16
    }

    pub(crate) const fn part(index: u16) -> u32 {
        3 | (index as u32) << 16
    }

    pub(crate) const fn reshape(index: u16) -> u32 {
        4 | (index as u32) << 16
    }

    const _: () = assert!(size_of::<EditTarget>() == 4, "a kind and an index");
}

macro_rules! helpers {
    ($($helper:ident = $function:ident ($($param:ident),*) -> ($($result:ident),*);)*) => {
        /// A function that compiled code calls.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Helper { $($helper),* }

        impl Helper {
            /// Number of helpers.
            pub(crate) const COUNT: usize = [$(Self::$helper),*].len();

            /// The address of its code.
            pub(crate) fn address(self) -> usize {
                match self { $(Self::$helper => $function as *const () as usize),* }
            }

            /// The types of its parameters and of its results.
            pub(crate) fn signature(self) -> (&'static [Type], &'static [Type]) {
                use types::{F64, I8, I64};
                // Not every signature has every type.
                let _ = (F64, I8, I64);
                match self { $(Self::$helper => (&[$($param),*], &[$($result),*])),* }
            }
        }
    };
}

helpers! {
    Begin = begin(I64) -> ();
    EndPass = end_pass(I64, I64, I64, I64, I64, I64) -> ();
    Redirect = redirect(I64, I64, I64, I64) -> ();
    Egress = egress(I64) -> (I64, I64);

    IntToText = int_to_text(I64, I64, I64) -> (I64, I64);
    FloatToText = float_to_text(I64, F64) -> (I64, I64);
    IsIntText = is_int_text(I64, I64, I64) -> (I8);
    TextToInt = text_to_int(I64, I64, I64) -> (I64);
    IsFloatText = is_float_text(I64, I64) -> (I8);
    TextToFloat = text_to_float(I64, I64) -> (F64);

    BytesEqual = bytes_equal(I64, I64, I64) -> (I8);
    BytesOrder = bytes_order(I64, I64, I64, I64) -> (I64);
    StartsWith = starts_with(I64, I64, I64, I64) -> (I8);
    EndsWith = ends_with(I64, I64, I64, I64) -> (I8);
    Contains = contains(I64, I64, I64, I64) -> (I8);
    Like = like(I64, I64, I64, I64) -> (I8);
    Lower = lower(I64, I64, I64) -> (I64, I64);
    Upper = upper(I64, I64, I64) -> (I64, I64);
    Keep = keep(I64, I64, I64) -> (I64, I64);
    HashBytes = hash_bytes(I64, I64) -> (I64);
    HashOfKey = hash_of_key(I64, I64, I64) -> (I64);
    FrameSum = frame_sum(I64, I64) -> (I64);
    FlowOf = flow_of(I64, I64, I8, I64) -> (I64);
    IsIcmpError = is_icmp_error(I64, I64, I64, I64) -> (I8);
    IsIntact = is_intact(I64, I64, I64, I64) -> (I8);
    TunnelDepth = tunnel_depth(I64, I64, I64, I64) -> (I64);
    PacketSize = packet_size(I64, I64, I8, I64) -> (I64);
    InPrefix = in_prefix(I64, I64, I64, I64) -> (I8);

    Native = native(I64, I64, I64, I64) -> (I64);
    Derived = derived(I64, I64, I64, I64) -> (I64, I64);

    CopyCells = copy_cells_to_scratch(I64, I64, I64, I64) -> ();
    Mark = mark(I64, I64, I64) -> ();
    Mirror = mirror(I64, I64, I64) -> ();

    CallSetWord = call_set_word(I64, I64, I64) -> ();
    VarSet = var_set(I64, I64, I64) -> ();
    VarMerge = var_merge(I64, I64, I64) -> ();
    VarMerged = var_merged(I64, I64, I64) -> (I64);
    VarReset = var_reset(I64, I64, I64, I64) -> ();
    LockVars = lock_vars(I64) -> ();
    UnlockVars = unlock_vars(I64) -> ();

    Key = key(I64, I64, I64) -> (I64, I64);
    FindParts = find_parts(I64, I64, I64, I64) -> (I64, I64);
    MatchWords = match_words(I64, I64) -> (I64, I64);
    MatchValues = match_values(I64, I64, I64) -> (I64, I64);
    PackPart = pack_part(I64, I64, I64, I64, I64) -> ();
    Remove = remove(I64, I64, I64, I64) -> ();
    TouchNoted = touch_journaled(I64, I64, I64) -> ();
    TouchReadNoted = touch_read_journaled(I64, I64, I64) -> ();
    ColumnWord = column_word(I64, I64, I64) -> (I64);
    ColumnBytes = column_bytes(I64, I64, I64, I64) -> (I64, I64);
    ColumnIsNull = column_is_null(I64, I64, I64) -> (I8);
    SetWord = set_word(I64, I64, I64, I64, I64) -> ();
    SetBytes = set_bytes(I64, I64, I64, I64, I64, I64) -> (I8);
    SetNull = set_null(I64, I64, I64, I64) -> ();
    CountInto = count_into(I64, I64, I64, I64, I64) -> ();
    Count = count(I64, I64) -> (I64);
    ScanRow = scan_row(I64, I64, I64) -> (I64, I64);
    ExpiredRow = expired_row(I64, I64) -> (I64, I64);
    Lock = lock(I64, I64) -> ();
    Unlock = unlock(I64, I64) -> ();
    LockAll = lock_all(I64) -> ();
    UnlockAll = unlock_all(I64) -> ();
}

macro_rules! cold_helpers {
    ($($helper:ident = $function:ident / $params:literal;)*) => {
        /// A function that compiled code calls on rare paths: it takes words and returns nothing.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Cold { $($helper),* }

        impl Cold {
            /// All of them, in the order of their numbers.
            pub(crate) const ALL: &'static [Self] = &[$(Self::$helper),*];

            /// The address of its code.
            pub(crate) fn address(self) -> usize {
                match self { $(Self::$helper => $function as *const () as usize),* }
            }

            /// Number of its parameters.
            pub(crate) fn params(self) -> usize {
                match self { $(Self::$helper => $params),* }
            }
        }
    };
}

cold_helpers! {
    MakeRoom = make_room / 1;
    Clock = clock / 2;
    Stamp = stamp / 3;
    EndPass = end_pass / 6;
    RollBack = roll_back / 2;
    FindInt = find_int / 4;
    FindBytes = find_bytes / 5;
    InsertInt = insert_int / 4;
    InsertBytes = insert_bytes / 5;
    CallSetBytes = call_set_bytes / 5;
    Slice = slice / 5;
    Copy = copy / 3;
    MakeEdits = make_edits / 2;
    MakeRows = make_rows / 2;
    MakeCells = make_cells / 2;
}

// The course of a pass.

extern "C" fn make_room(cx: &mut Cx<'_>) {
    frame::make_room(cx.out);
}

/// Reads the clock, on sampled passes.
extern "C" fn clock(cx: &Cx<'_>, began: &mut u64) {
    *began = cx.trace.map_or(0, |clock| clock());
}

/// Ends the pass in an element: counts it, records the time on sampled passes, and sets the outcome. `packed` is a
/// [`verdict`], `code` that of a status or fault.
extern "C" fn end_pass(cx: &mut Cx<'_>, packed: u64, code: u64, began: &mut u64, text: Bytes) {
    let kind = packed & 0xff & !verdict::FLAGS;
    let element = packed >> 16 & 0xffff;
    let counters = &mut cx.counters[element as usize];
    let out = &mut *cx.out;
    let (counter, verdict) = match kind {
        verdict::DROP => (&mut counters.dropped, Verdict::Drop),
        verdict::ABORT => {
            let status = Status::from_code(code).unwrap_or(Status::Unknown);
            (&mut counters.aborted, Verdict::Abort(status))
        }
        verdict::REPLY => (&mut counters.diverted, Verdict::Reply),
        _ => {
            let fault = u8::try_from(code).ok().and_then(Fault::from_code);
            (&mut counters.failed, Verdict::Failed(fault.unwrap_or(Fault::FunctionFailed)))
        }
    };
    *counter += 1;
    out.verdict = verdict;
    out.opening = packed & verdict::OPENING != 0;
    out.element = element as u16;
    out.line = (packed >> 32) as u32;
    set_text(cx, text);
    stamp(cx, began, element | u64::from(packed & verdict::COUNTS != 0) << 32);
}

extern "C" fn begin(frame: &mut Frame<'_, '_>) {
    frame.begin();
}

extern "C" fn roll_back(frame: &mut Frame<'_, '_>, to_start: u64) {
    frame.roll_back(to_start != 0);
}

/// Ends a handler on a sampled pass that `began` at this time. `element` is its index in the low half, and 1 in the
/// upper half for the first handler of its element.
extern "C" fn stamp(cx: &mut Cx<'_>, began: &mut u64, element: u64) {
    let Some(clock) = cx.trace else { return };
    let now = clock();
    let counters = &mut cx.counters[element as u32 as usize];
    counters.sampled_ns += now.saturating_sub(*began);
    counters.sampled += element >> 32;
    *began = now;
}

/// Copies bytes to the text of the outcome, which they may be a part of.
fn set_text(cx: &mut Cx<'_>, text: Bytes) {
    let (out, len) = (&mut cx.out.text, text.len as usize);
    out.clear();
    out.reserve(len);
    // SAFETY: there is room for the bytes, and all bytes up to the new length are set. Bytes of the vector itself stay
    // in place: the vector grows only for more bytes than it has.
    unsafe {
        // The source may be the current target, or a part of it.
        core::ptr::copy(text.start, out.as_mut_ptr(), len);
        out.set_len(len);
    }
}

/// [`Verdict::Redirect`] as a byte in memory.
pub(crate) const REDIRECTED: u8 = {
    let verdict = Verdict::Redirect;
    // SAFETY: it is `repr(u8)`, so its first byte is the discriminant.
    unsafe { *core::ptr::from_ref(&verdict).cast() }
};

/// Sets the target of a redirect; `at` is the element in the low 16 bits and the line in the upper 32.
extern "C" fn redirect(cx: &mut Cx<'_>, at: u64, to: Bytes) {
    match ShortName::of(to.as_slice()) {
        Some(name) => cx.out.target = name,
        None => {
            // An earlier element may have set another.
            cx.out.target = ShortName::default();
            set_text(cx, to);
        }
    }
    cx.out.verdict = Verdict::Redirect;
    cx.out.element = at as u16;
    cx.out.line = (at >> 32) as u32;
}

/// As [`Cx::egress`]. The bytes stay in place until an element sets another target.
extern "C" fn egress(cx: &mut Cx<'_>) -> Bytes {
    let (out, target) = (&*cx.out, &cx.out.target);
    match out.verdict {
        Verdict::Redirect if target.is_none() => of_slice(&out.text),
        // The words are little-endian, as on every machine that the JIT supports.
        Verdict::Redirect => Bytes { start: target.words.as_ptr().cast(), len: target.len },
        _ => of_slice(cx.egress),
    }
}

/// The address and length of bytes.
fn of_slice(bytes: &[u8]) -> Bytes {
    Bytes { start: bytes.as_ptr(), len: bytes.len() as u64 }
}

// Text and bytes.

/// Formats an integer in decimal, and keeps the digits in the scratch.
extern "C" fn int_to_text(frame: &mut Frame<'_, '_>, value: u64, signed: u64) -> Bytes {
    let mut digits = [0; 20];
    let negative = signed != 0 && (value as i64) < 0;
    let mut rest = if negative { value.wrapping_neg() } else { value };
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            break;
        }
    }
    if negative {
        // A magnitude of 2^63 has 19 digits, so there is room for the sign.
        at -= 1;
        digits[at] = b'-';
    }
    let text = &digits[at..];
    let kept = frame.keep(Bytes { start: text.as_ptr(), len: text.len() as u64 });
    frame.kept(kept)
}

/// Formats a float, and keeps the text in the scratch.
extern "C" fn float_to_text(frame: &mut Frame<'_, '_>, x: f64) -> Bytes {
    let mut out = Vec::with_capacity(text::FLOAT_TEXT_MAX);
    text::float_text(x, &mut out);
    let kept = frame.keep(Bytes { start: out.as_ptr(), len: out.len() as u64 });
    frame.kept(kept)
}

extern "C" fn is_int_text(text: Bytes, signed: u64) -> bool {
    text::parse_int(text.as_slice(), signed != 0).is_some()
}

extern "C" fn text_to_int(text: Bytes, signed: u64) -> u64 {
    text::parse_int(text.as_slice(), signed != 0).unwrap_or(0)
}

extern "C" fn is_float_text(text: Bytes) -> bool {
    text::parse_float(text.as_slice()).is_some()
}

extern "C" fn text_to_float(text: Bytes) -> f64 {
    text::parse_float(text.as_slice()).unwrap_or(0.0)
}

/// Both have the same length.
extern "C" fn bytes_equal(a: *const u8, b: *const u8, len: u64) -> bool {
    Bytes { start: a, len }.as_slice() == Bytes { start: b, len }.as_slice()
}

/// Less than, equal to or greater than 0 as the first is less than, equal to or greater than the second.
extern "C" fn bytes_order(a: Bytes, b: Bytes) -> i64 {
    a.as_slice().cmp(b.as_slice()) as i64
}

extern "C" fn starts_with(a: Bytes, b: Bytes) -> bool {
    a.as_slice().starts_with(b.as_slice())
}

extern "C" fn ends_with(a: Bytes, b: Bytes) -> bool {
    a.as_slice().ends_with(b.as_slice())
}

extern "C" fn contains(a: Bytes, b: Bytes) -> bool {
    text::contains(a.as_slice(), b.as_slice())
}

extern "C" fn frame_sum(bytes: Bytes) -> u64 {
    checksum::fold(checksum::sum(bytes.as_slice())).into()
}

// Values of a frame depend on its bytes, its link type and its offloads: see `Meta::compute`.

extern "C" fn flow_of(frame: Bytes, is_ip: bool, _: &Offload) -> u64 {
    flow::flow_of(frame.as_slice(), is_ip).flow.into()
}

extern "C" fn is_icmp_error(frame: Bytes, formats: &Formats, _: &Offload) -> bool {
    formats.is_error(frame.as_slice())
}

extern "C" fn is_intact(frame: Bytes, formats: &Formats, offload: &Offload) -> bool {
    formats.is_intact(frame.as_slice(), offload)
}

extern "C" fn tunnel_depth(frame: Bytes, formats: &Formats, _: &Offload) -> u64 {
    formats.tunnel_depth(frame.as_slice())
}

extern "C" fn packet_size(frame: Bytes, is_ip: bool, offload: &Offload) -> u64 {
    size_of_packet(frame.as_slice(), offload, is_ip) as u64
}

extern "C" fn like(a: Bytes, pattern: Bytes) -> bool {
    text::like(a.as_slice(), pattern.as_slice())
}

/// Copies text to the scratch in ASCII lower case.
extern "C" fn lower(frame: &mut Frame<'_, '_>, text: Bytes) -> Bytes {
    let (start, len) = frame.keep(text);
    frame.cx.out.scratch[start as usize..(start + len) as usize].make_ascii_lowercase();
    frame.kept((start, len))
}

/// Copies text to the scratch in ASCII upper case.
extern "C" fn upper(frame: &mut Frame<'_, '_>, text: Bytes) -> Bytes {
    let (start, len) = frame.keep(text);
    frame.cx.out.scratch[start as usize..(start + len) as usize].make_ascii_uppercase();
    frame.kept((start, len))
}

/// Computes the range of whole characters in a slice of text; writes it to `cut`.
extern "C" fn slice(bytes: Bytes, from: i64, count: i64, cut: &mut Bytes) {
    let range = text::slice(bytes.as_slice(), from, count);
    *cut = Bytes { start: bytes.start.wrapping_add(range.start), len: range.len() as u64 };
}

/// Copies bytes to the scratch; returns the copy.
extern "C" fn keep(frame: &mut Frame<'_, '_>, bytes: Bytes) -> Bytes {
    let kept = frame.keep(bytes);
    frame.kept(kept)
}

extern "C" fn hash_bytes(bytes: Bytes) -> u64 {
    hash::hash_bytes(bytes.as_slice())
}

extern "C" fn hash_of_key(table: &Arc<Table>, key: Bytes) -> u64 {
    table.hash_bytes(key.as_slice())
}

extern "C" fn in_prefix(address: Bytes, prefix: Bytes) -> bool {
    text::in_prefix(address.as_slice(), prefix.as_slice())
}

/// How a native function ended, as [`native`] reports it.
pub(crate) mod ended {
    pub(crate) const NULL: u64 = 1;
    pub(crate) const FAILED: u64 = 2;
    pub(crate) const VALUE: u64 = 0;
}

/// Calls a native function. `what` holds its index in the low 16 bits, the number of arguments in the next 8, the
/// [`tag`] of its result in the next 8, and the largest length of the result in the upper half. The result is zero
/// unless the function ends with a value.
extern "C" fn native(frame: &mut Frame<'_, '_>, what: u64, given: *const Cell, result: &mut Bytes) -> u64 {
    let given = cells(given, what >> 16 & 0xff);
    let mut args = [Arg::Int(0); NATIVE_ARGS_MAX];
    for (arg, cell) in args.iter_mut().zip(given) {
        *arg = match cell.tag {
            tag::BOOL => Arg::Bool(cell.a != 0),
            tag::INT => Arg::Int(cell.a as i64),
            tag::FLOAT => Arg::Float(f64::from_bits(cell.a)),
            _ => Arg::Bytes(cell.bytes().as_slice()),
        };
    }
    let cx = &mut *frame.cx;
    let call = Call { args: &args[..given.len()], now: cx.now, rand: cx.rand };
    let mut made = core::mem::take(&mut cx.out.made);
    made.clear();
    let ended = cx.state.natives[(what & 0xffff) as usize].call(&call, &mut made);
    *result = Bytes { start: core::ptr::null(), len: 0 };
    let is = |wanted| what >> 24 & 0xff == wanted;
    let word = |word: u64| Bytes { start: core::ptr::without_provenance(word as usize), len: 0 };
    let how = match ended {
        Ended::Bool(b) if is(tag::BOOL) => {
            *result = word(u64::from(b));
            ended::VALUE
        }
        Ended::Int(n) if is(tag::INT) => {
            *result = word(n as u64);
            ended::VALUE
        }
        Ended::Bytes if is(tag::BYTES) && made.len() as u64 <= what >> 32 => {
            let kept = frame.keep(Bytes { start: made.as_ptr(), len: made.len() as u64 });
            *result = frame.kept(kept);
            ended::VALUE
        }
        Ended::Null => ended::NULL,
        _ => ended::FAILED,
    };
    frame.cx.out.made = made;
    if how != ended::VALUE && is(tag::BYTES) {
        *result = frame.kept((0, 0));
    }
    how
}

/// What is derived from the message after the changes so far: its bytes, or their number, in the first word. For an
/// unchanged message, the two words of the pass's input.
extern "C" fn derived(frame: &mut Frame<'_, '_>, given: Bytes, is_bytes: u64) -> Bytes {
    let rewrite = frame.cx.rewrite();
    if rewrite == Rewrite::Failed {
        frame.scratch_full = 1;
    }
    let message = match (rewrite, is_bytes != 0) {
        (Rewrite::Unchanged, _) => return given,
        (Rewrite::Failed, true) => return Bytes::EMPTY,
        (Rewrite::Failed, false) => 0,
        (Rewrite::Changed, false) => frame.cx.out.message.len(),
        (Rewrite::Changed, true) => {
            let message = core::mem::take(&mut frame.cx.out.message);
            let kept = frame.keep(Bytes::of(&message));
            frame.cx.out.message = message;
            return frame.kept(kept);
        }
    };
    Bytes { start: core::ptr::without_provenance(message), len: 0 }
}

// Outputs of the pass.

/// Copies bytes to a range that compiled code has allocated.
extern "C" fn copy(bytes: Bytes, to: *mut u8) {
    // SAFETY: there is room for the bytes at `to`, and nothing points there, so source and destination do not overlap.
    unsafe { core::ptr::copy_nonoverlapping(bytes.start, to, bytes.len as usize) };
}

extern "C" fn make_edits(cx: &mut Cx<'_>, n: u64) {
    cx.out.edits.reserve(n as usize);
}

extern "C" fn make_rows(cx: &mut Cx<'_>, n: u64) {
    cx.out.rows.reserve(n as usize);
}

extern "C" fn make_cells(cx: &mut Cx<'_>, n: u64) {
    cx.out.cells.reserve(n as usize);
}

/// Bytes of a [`Bytes`].
pub(crate) const BYTES_BYTES: u32 = size_of::<Bytes>() as u32;

/// Copies runs of bytes into the scratch, and sets the values of their cells: one run for each bit that is set, in
/// order.
extern "C" fn copy_cells_to_scratch(
    frame: &mut Frame<'_, '_>,
    runs: *const Bytes,
    mut which: u64,
    cells: *mut [u64; 2],
) {
    // SAFETY: compiled code passes one run per bit, which it has just put on its stack.
    let runs = unsafe { core::slice::from_raw_parts(runs, which.count_ones() as usize) };
    let mut to = frame.appender();
    for run in runs {
        let (start, len) = to.append(*run);
        // SAFETY: the cells are in the outcome's vector, of which nothing else is borrowed here, and their second word
        // is the value.
        unsafe { cells.add(which.trailing_zeros() as usize).cast::<u64>().add(1).write(start | len << 32) };
        which &= which - 1;
    }
    to.finish();
}

/// `what` is the index of a mark in [`Mark::ALL`].
extern "C" fn mark(cx: &mut Cx<'_>, what: u64, value: u64) {
    cx.out.marks.set(Mark::ALL[what as usize], value);
}

/// Records a mirror to this target, with the edits so far.
extern "C" fn mirror(frame: &mut Frame<'_, '_>, to: Bytes) {
    let target = frame.keep(to);
    let edits = frame.cx.out.edits.len() as u32;
    frame.cx.out.mirrors.push(weft_core::abi::Mirror { target, edits });
}

// The call's row and scalar variables.

/// Sets a word of the call's row, and journals the old one.
extern "C" fn call_set_word(frame: &mut Frame<'_, '_>, word: u64, value: u64) {
    let old = core::mem::replace(&mut frame.cx.call[word as usize], value);
    frame.cx.out.journal.record_call(word as u32, old);
}

/// Sets a cell of bytes of the call's row, cut to the size of the cell. `at` is its first word in the low half and its
/// size in the upper.
extern "C" fn call_set_bytes(frame: &mut Frame<'_, '_>, at: u64, journal: u64, value: Bytes) {
    let (word, max) = (at as u32 as usize, (at >> 32) as usize);
    let bytes = value.as_slice();
    let bytes = &bytes[..bytes.len().min(max)];
    if journal == 0 {
        return set_cell(&mut frame.cx.call[word..], bytes);
    }
    let words = core::iter::once(bytes.len() as u64).chain(bytes.chunks(8).map(|chunk| {
        let mut word = [0; 8];
        word[..chunk.len()].copy_from_slice(chunk);
        u64::from_le_bytes(word)
    }));
    for (at, new) in (word..).zip(words) {
        let old = core::mem::replace(&mut frame.cx.call[at], new);
        frame.cx.out.journal.record_call(at as u32, old);
    }
}

/// Sets the cell at the start of these words: the length, then the bytes, the last word zero-padded.
#[inline(always)]
fn set_cell(words: &mut [u64], bytes: &[u8]) {
    let (len, words) = words.split_first_mut().expect("a cell has a length");
    *len = bytes.len() as u64;
    let words = &mut words[..bytes.len().div_ceil(8)];
    if let Some(last) = words.last_mut() {
        *last = 0;
        // SAFETY: the words are at least as long as the bytes, and do not overlap them: no value points to a cell of
        // the call's row that is written while the value is in use.
        unsafe { copy_short(bytes.as_ptr(), words.as_mut_ptr().cast(), bytes.len()) };
    }
}

/// Sets a scalar variable, and journals the old value.
extern "C" fn var_set(frame: &mut Frame<'_, '_>, word: u64, value: u64) {
    let scalars = &frame.cx.state.scalars;
    frame.cx.out.journal.record_scalar(word as u32, scalars.word(word as usize));
    scalars.set_word(word as usize, value);
}

/// Sets this worker's part of a MERGE variable, and journals the old value.
extern "C" fn var_merge(frame: &mut Frame<'_, '_>, word: u64, value: u64) {
    let merged = &frame.cx.state.merged;
    frame.cx.out.journal.record_merged(word as u32, merged.word(word as usize));
    merged.set_word(word as usize, value);
}

/// Encodes the merge operation of a MERGE variable for compiled code.
pub(crate) fn merge_code(merge: Merge, signed: bool) -> i64 {
    let kind = match merge {
        Merge::Sum => 0,
        Merge::Max => 1,
        Merge::Min => 2,
    };
    kind | i64::from(signed) << 8
}

/// Merges two parts of a MERGE variable.
fn merge(code: u64, a: u64, b: u64) -> u64 {
    match (code & 0xff, code >> 8 != 0) {
        (0, _) => a.wrapping_add(b),
        (1, true) => (a as i64).max(b as i64) as u64,
        (1, false) => a.max(b),
        (_, true) => (a as i64).min(b as i64) as u64,
        (_, false) => a.min(b),
    }
}

/// Merges the parts of all workers of a variable; 0 if there are none.
extern "C" fn var_merged(frame: &Frame<'_, '_>, word: u64, code: u64) -> u64 {
    let parts = frame.cx.state.merged_parts.iter().map(|part| part.word(word as usize));
    parts.reduce(|a, b| merge(code, a, b)).unwrap_or(0)
}

/// Resets a merged variable; `code` is its merge operation, where 0 is a sum.
extern "C" fn var_reset(frame: &Frame<'_, '_>, word: u64, code: u64, start: u64) {
    let word = word as usize;
    if code & 0xff == 0 {
        let sum = var_merged(frame, word as u64, code);
        frame.cx.state.merged.add(word, start.wrapping_sub(sum));
    } else {
        frame.cx.state.merged_parts.iter().for_each(|part| part.set_word(word, start));
    }
}

extern "C" fn lock_vars(frame: &Frame<'_, '_>) {
    frame.cx.state.scalars.lock();
}

extern "C" fn unlock_vars(frame: &Frame<'_, '_>) {
    frame.cx.state.scalars.unlock();
}

// Tables.

/// Encodes a key of several columns in canonical form, and keeps it in the scratch.
extern "C" fn key(frame: &mut Frame<'_, '_>, parts: *const Cell, n: u64) -> Bytes {
    let parts = cells(parts, n);
    // As `KeyBuilder`, but in place.
    let len = |part: &Cell| if part.tag == tag::BYTES { 4 + part.bytes().len as usize } else { 8 };
    let len = parts.iter().map(len).sum();
    if !frame.take(len) {
        return Bytes::EMPTY;
    }
    let start = frame.cx.out.scratch.len();
    for part in parts {
        match part.tag {
            tag::BYTES => {
                let bytes = part.bytes();
                frame.append(Bytes::of(&(bytes.len as u32).to_le_bytes()));
                frame.append(bytes);
            }
            _ => frame.append(Bytes::of(&part.a.to_le_bytes())),
        }
    }
    frame.kept((start as u32, len as u32))
}

extern "C" fn find_int(table: &Arc<Table>, key: u64, now: i64, found: &mut RowRef) {
    *found = RowRef::found(table.find_int_words(key, Time(now)));
}

extern "C" fn find_bytes(table: &Arc<Table>, key: Bytes, now: i64, found: &mut RowRef) {
    *found = find_parts(table, key, now);
}

extern "C" fn find_parts(table: &Arc<Table>, key: Bytes, now: i64) -> RowRef {
    RowRef::found(table.find_bytes_words(key.as_slice(), Time(now)))
}

/// The first row that matches a key, given as all its words.
extern "C" fn match_words(matcher: &Arc<Matcher>, words: &[u64; WORDS_MAX]) -> RowRef {
    RowRef::matched(matcher.find_words(words))
}

/// Finds the first row that matches these values: one cell for each part of the match.
extern "C" fn match_values(matcher: &Arc<Matcher>, parts: *const Cell, n: u64) -> RowRef {
    let mut words = [0; WORDS_MAX];
    for (part, cell) in cells(parts, n).iter().enumerate() {
        let key = match cell.tag {
            tag::NULL => Key::Null,
            tag::BYTES => Key::Bytes(cell.bytes().as_slice()),
            _ => Key::Word(cell.a),
        };
        matcher.pack(part, key, &mut words);
    }
    RowRef::matched(matcher.find_words(&words))
}

/// Sets the bits of a bytes part in a key in which they are clear; an impossible length stands for NULL.
extern "C" fn pack_part(matcher: &Arc<Matcher>, words: &mut [u64; WORDS_MAX], part: u64, value: Bytes) {
    let key = if value.len == NULL_LEN { Key::Null } else { Key::Bytes(value.as_slice()) };
    matcher.pack(part as usize, key, words);
}

/// Stands for NULL where a length is expected.
pub(crate) const NULL_LEN: u64 = u64::MAX;

/// The handle and address of an inserted row; no row if the table refused it.
fn inserted(table: &Table, insert: Insert) -> RowRef {
    match insert {
        Insert::New(row) => RowRef::new(table, row),
        Insert::Full | Insert::TooLong => RowRef::new(table, Row::NONE),
    }
}

/// Inserts a row by a key of one word. A nonzero upper half of `table` requests a journal entry.
extern "C" fn insert_int(frame: &mut Frame<'_, '_>, table: u64, key: u64, new: &mut RowRef) {
    let rows = &frame.cx.state.tables[table as u16 as usize];
    let now = frame.cx.now;
    let insert = match table >> 32 {
        0 => rows.insert_int(key, now),
        _ => frame.cx.out.journal.insert_int(table as u16, rows, key, now),
    };
    *new = inserted(rows, insert);
}

/// Inserts a row by a key in bytes; the arguments are as for [`insert_int`].
extern "C" fn insert_bytes(frame: &mut Frame<'_, '_>, table: u64, key: Bytes, new: &mut RowRef) {
    let rows = &frame.cx.state.tables[table as u16 as usize];
    let (now, key) = (frame.cx.now, key.as_slice());
    let insert = match table >> 32 {
        0 => rows.insert_bytes(key, now),
        _ => frame.cx.out.journal.insert_bytes(table as u16, rows, key, now),
    };
    *new = inserted(rows, insert);
}

/// Removes a row, with a journal entry if `journal` is not 0.
extern "C" fn remove(frame: &mut Frame<'_, '_>, table: u64, row: u64, journal: u64) {
    let rows = &frame.cx.state.tables[table as usize];
    if journal != 0 {
        frame.cx.out.journal.record_remove(table as u16, Row(row), rows);
    }
    rows.remove(Row(row));
}

/// Renews a row's time of use, with a journal entry.
extern "C" fn touch_journaled(frame: &mut Frame<'_, '_>, table: u64, row: u64) {
    let rows = &frame.cx.state.tables[table as usize];
    frame.cx.out.journal.record_touch(table as u16, Row(row), rows);
    rows.touch(Row(row), frame.cx.now);
}

/// Renews a row's time of reading, with a journal entry.
extern "C" fn touch_read_journaled(frame: &mut Frame<'_, '_>, table: u64, row: u64) {
    let rows = &frame.cx.state.tables[table as usize];
    frame.cx.out.journal.record_touch(table as u16, Row(row), rows);
    rows.touch_read(Row(row), frame.cx.now);
}

// In the following, a row may be missing where the comment says so; elsewhere compiled code has checked it.

/// Reads a column of one word; 0 for NULL or if there is no row.
extern "C" fn column_word(table: &Arc<Table>, row: u64, column: &ColumnRef) -> u64 {
    let row = Row(row);
    if row.is_none() || table.is_null(row, *column) { 0 } else { table.word(row, *column) }
}

/// Copies the bytes of a column word by word, so that a concurrent writer does no harm.
extern "C" fn column_bytes(frame: &mut Frame<'_, '_>, table: u64, row: u64, column: &ColumnRef) -> Bytes {
    let (rows, row) = (&frame.cx.state.tables[table as usize], Row(row));
    if row.is_none() || rows.is_null(row, *column) {
        return Bytes::EMPTY;
    }
    let len = rows.bytes_len(row, *column);
    if !frame.take(len) {
        return Bytes::EMPTY;
    }
    let scratch = &mut frame.cx.out.scratch;
    let start = scratch.len();
    rows.bytes_into(row, *column, scratch);
    // A writer may have changed the length in the meantime.
    scratch.resize(start + len, 0);
    frame.kept((start as u32, len as u32))
}

extern "C" fn column_is_null(table: &Arc<Table>, row: u64, column: &ColumnRef) -> bool {
    let row = Row(row);
    row.is_none() || table.is_null(row, *column)
}

/// Sets the word of a column of an existing row. The upper half of `table` requests the journal.
extern "C" fn set_word(frame: &mut Frame<'_, '_>, table: u64, row: u64, column: &ColumnRef, value: u64) {
    let (at, row) = (table as u16, Row(row));
    let rows = &frame.cx.state.tables[usize::from(at)];
    if table >> 32 != 0 {
        frame.cx.out.journal.record_store(at, row, *column, rows);
    }
    rows.set_word(row, *column, value);
    rows.set_null(row, *column, false);
}

/// As [`set_word`], for bytes; returns false if they are too long.
extern "C" fn set_bytes(
    frame: &mut Frame<'_, '_>,
    table: u64,
    row: u64,
    column: &ColumnRef,
    value: Bytes,
) -> bool {
    let (at, row) = (table as u16, Row(row));
    if value.len > u64::from(column.bytes_max) {
        return false;
    }
    let rows = &frame.cx.state.tables[usize::from(at)];
    if table >> 32 != 0 {
        frame.cx.out.journal.record_bytes(at, row, *column, rows);
    }
    rows.set_bytes(row, *column, value.as_slice());
    rows.set_null(row, *column, false);
    true
}

/// Makes a column of a row that is there NULL. `table` asks for the journal with its upper half.
extern "C" fn set_null(frame: &mut Frame<'_, '_>, table: u64, row: u64, column: &ColumnRef) {
    let (at, row) = (table as u16, Row(row));
    let rows = &frame.cx.state.tables[usize::from(at)];
    if table >> 32 != 0 {
        match column.bytes_max {
            0 => frame.cx.out.journal.record_store(at, row, *column, rows),
            _ => frame.cx.out.journal.record_bytes(at, row, *column, rows),
        }
    }
    rows.set_null(row, *column, true);
}

/// Adds to a counter of a column of counters; `table` is as for [`set_bytes`].
extern "C" fn count_into(frame: &mut Frame<'_, '_>, table: u64, row: u64, column: &ColumnRef, bin: u64) {
    let (at, row) = (table as u16, Row(row));
    let rows = &frame.cx.state.tables[usize::from(at)];
    if table >> 32 != 0 {
        frame.cx.out.journal.record_count(at, row, *column, rows);
    }
    rows.count_into(row, *column, bin);
}

extern "C" fn count(table: &Arc<Table>, now: i64) -> u64 {
    table.count(Time(now))
}

/// Finds the first live row from `cursor` on; no row at the end of the table.
extern "C" fn scan_row(table: &Arc<Table>, cursor: u64, now: i64) -> RowRef {
    let row = table.scan(cursor, Time(now)).map_or(Row::NONE, |(row, _)| row);
    RowRef::new(table, row)
}

extern "C" fn expired_row(table: &Arc<Table>, row: u64) -> RowRef {
    RowRef::new(table, Row(row))
}

extern "C" fn lock(table: &Arc<Table>, hash: u64) {
    table.lock(hash);
}

extern "C" fn unlock(table: &Arc<Table>, hash: u64) {
    table.unlock(hash);
}

extern "C" fn lock_all(table: &Arc<Table>) {
    table.lock_all();
}

extern "C" fn unlock_all(table: &Arc<Table>) {
    table.unlock_all();
}
