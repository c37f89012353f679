//! Functions in static single assignment form.
//!
//! A function is one handler of one element instance. It consists of basic blocks with parameters; block 0 is the entry
//! and has none. Every instruction is total: it has a result for all operands. An operation that can go wrong has a
//! predicate that tells whether it did ([`Op::Overflows`] beside [`Op::IntBinary`]). So NULL, unknown and error values
//! of the language are ordinary booleans here, and back ends cannot differ.
//!
//! Back edges lead only to blocks with [`Block::scan_rows_max`], so cost is bounded.
//!
//! # The scratch
//!
//! A pass may allocate [`Outcome::scratch_max`](weft_core::abi::Outcome::scratch_max) bytes. All back ends must agree
//! on when it is full, so the semantics of each operation define how much it allocates:
//! * [`Op::Concat`], [`Op::Lower`], [`Op::Upper`], [`Op::IntToText`], [`Op::FloatToText`], [`Op::Key`], and
//!   [`Op::Column`] and [`Op::CallGet`] of bytes allocate the length of their result;
//! * [`Op::SetInput`], [`Op::SetAnswer`], [`Op::SetReply`], [`Op::Emit`], [`Op::Mirror`] and [`Op::ChangeHeaders`]
//!   allocate the length of each Bytes operand, in order (NULL cells of an Emit allocate nothing);
//! * [`Op::Native`] of bytes allocates the length of its result;
//! * [`Op::Derived`] of bytes allocates the length of its result if the message is changed;
//! * nothing else allocates; the text of an ABORT or REDIRECT does not.
//!
//! If the scratch has too little space, the result is empty, and [`Op::ScratchFull`] becomes true. [`Op::RollBack`] and
//! [`Terminator::Fail`] free what the handler has allocated, as `Outcome::roll_back` does.

mod op_table;

pub(crate) use op_table::{Named, named, op_table};
use weft_core::Status;
use weft_core::abi::Fault;
use weft_core::marks::Mark;
use weft_core::types::{Repr, Type};

/// A value: the result of an instruction, or a block parameter. It is unique within its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// A block of a function; 0 is the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ty {
    /// 0 or 1.
    Bool,
    /// 64 bits; the operation determines signedness.
    Int,
    /// IEEE 754 binary64.
    Float,
    /// Immutable bytes, valid until the pass ends.
    Bytes,
    /// A table row, or no row.
    Row,
}

/// A function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Function {
    /// The name in messages: `acl.request`.
    pub name: String,
    /// The blocks; block 0 is the entry.
    pub blocks: Vec<Block>,
    /// The type of each value, indexed by value.
    pub types: Vec<Ty>,
}

/// A basic block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// The parameters; each jump gives their values.
    pub params: Vec<Value>,
    /// The instructions, in order.
    pub insts: Vec<Inst>,
    /// The terminator.
    pub end: Terminator,
    /// Blocks that it dominates may jump back to this block: it is the head of a `SCAN` over at most this many rows, or
    /// of a loop over at most this many list elements.
    pub scan_rows_max: Option<u64>,
}

// Passes and back ends walk the instructions of a function many times.
const _: () = assert!(size_of::<Inst>() <= 64 && size_of::<Value>() == 4, "an instruction fits a cache line");

/// An instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Inst {
    /// The value that it defines; None for instructions with effects only.
    pub result: Option<Value>,
    /// The operation.
    pub op: Op,
    /// The source line, 0 if none.
    pub line: u32,
}

/// A table of the chain, an index into [`crate::program::ChainProgram::tables`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TableId(pub u16);
/// A column of a table, an index into the keys and then the columns of its [`crate::program::TableDecl::spec`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ColumnId(pub u16);
/// An input column of the direction, an index into [`crate::program::Direction::inputs`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct InputId(pub u16);

impl From<InputId> for usize {
    fn from(input: InputId) -> Self {
        input.0.into()
    }
}

/// A cell of the call's row, an index into [`crate::program::ChainProgram::call`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct CallId(pub u16);
/// A scalar variable, an index into [`crate::program::ChainProgram::vars`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct VarId(pub u16);
/// A sink, an index into [`crate::program::ChainProgram::sinks`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SinkId(pub u16);
/// A name for an answer's header or a reply's field, an index into the chain's lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NameId(pub u16);

/// A declared match over the rows of a table, an index into [`crate::program::ChainProgram::matches`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MatchId(pub u16);

/// A header change, an index into [`crate::program::ChainProgram::header_changes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HeaderChangeId(pub u16);

/// A native function of the chain, an index into [`crate::program::ChainProgram::natives`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NativeId(pub u16);

/// The operation of an instruction. Operands are listed in order; the comments give `operand types -> result type`.
#[derive(Clone, Debug, PartialEq)]
pub enum Op {
    // Constants.
    /// `-> Bool`
    BoolConst(bool),
    /// `-> Int`
    IntConst(i64),
    /// `-> Float`
    FloatConst(f64),
    /// `-> Bytes`
    BytesConst(Vec<u8>),
    /// No row. `-> Row`
    NoRow,

    // Integers. All wrap at 64 bits; `x / 0` and `x % 0` are 0; `MIN / -1` is `MIN`, `MIN % -1` is 0.
    /// `Int, Int -> Int`, by [`IntOp`].
    IntBinary(IntOp, Value, Value),
    /// Whether the operation overflows 64 bits. `Int, Int -> Bool`. Only for Add, Sub, Mul and SDiv (`MIN / -1`).
    Overflows(IntOp, Signed, Value, Value),
    /// `Int, Int -> Bool`
    IntCompare(IntCmp, Value, Value),
    /// Whether low <= value <= high (signed). `Int -> Bool`
    InRange(Value, i64, i64),

    // Floats. Results follow IEEE 754.
    /// `Float, Float -> Float`
    FloatBinary(FloatOp, Value, Value),
    /// `Float -> Float`
    FloatUnary(FloatUnaryOp, Value),
    /// `Float, Float -> Bool`; false if either is NaN.
    FloatCompare(FloatCmp, Value, Value),

    // Conversions.
    /// `Int -> Float`
    IntToFloat(Signed, Value),
    /// Truncates toward zero and saturates; NaN gives 0. `Float -> Int`
    FloatToInt(Signed, Value),
    /// Whether FloatToInt is exact up to truncation (no NaN, in range). `Float -> Bool`
    FloatFits(Signed, Value),
    /// Decimal text. `Int -> Bytes`
    IntToText(Signed, Value),
    /// The shortest text that reads back as the same float (Rust's `{}`), with `.0` for whole numbers below
    /// 10^16. `Float -> Bytes`
    FloatToText(Value),
    /// Whether the bytes are a decimal 64-bit integer (an optional `-` if signed, then only digits). `Bytes -> Bool`
    IsIntText(Signed, Value),
    /// The integer of a text, 0 if [`Op::IsIntText`] is false. `Bytes -> Int`
    TextToInt(Signed, Value),
    /// Whether the bytes are a decimal number with a finite float: an optional `-`, digits, an optional point with
    /// digits behind it, an optional `e` with an integer. `Bytes -> Bool`
    IsFloatText(Value),
    /// The float nearest to the number of a text, 0 if [`Op::IsFloatText`] is false. `Bytes -> Float`
    TextToFloat(Value),
    /// The float with these bits. `Int -> Float`
    FloatOfBits(Value),
    /// `Bool -> Int`
    BoolToInt(Value),

    // Booleans.
    /// `Bool, Bool -> Bool`
    BoolBinary(BoolOp, Value, Value),
    /// `Bool -> Bool`
    Not(Value),
    /// The second operand if the first is true, else the third; any type. `Bool, T, T -> T`
    Select(Value, Value, Value),

    // Bytes and text. Lengths and positions count bytes.
    /// `Bytes -> Int`
    Len(Value),
    /// The byte at an offset, 0 if there is none. `Bytes -> Int`
    ByteAt(Value, u8),
    /// The eight bytes from an offset as a little-endian integer; 0 if they exceed the bytes. `Bytes, Int -> Int`
    WordAt(Value, Value),
    /// A number of bytes from an offset; empty if they exceed the bytes. `Bytes, Int, Int -> Bytes`
    Part(Value, Value, Value),
    /// `Bytes, Bytes -> Bool`
    BytesCompare(BytesCmp, Value, Value),
    /// Concatenates bytes. If the scratch is full, the result is empty, and [`Op::ScratchFull`] becomes true. `Bytes...
    /// -> Bytes`
    Concat(Vec<Value>),
    /// ASCII letters only. `Bytes -> Bytes`
    Lower(Value),
    /// ASCII letters only. `Bytes -> Bytes`
    Upper(Value),
    /// The characters of a text that are wholly in a range: from a byte offset (clamped to 0..=len), at most a number
    /// of bytes (negative is 0). Partial characters at both ends, at most three bytes each, are left out, so that text
    /// stays text. `Bytes, Int, Int -> Bytes`
    Slice(Value, Value, Value),
    /// Whether an operation of this handler found the scratch full, since the handler began or since its last
    /// [`Op::RollBack`]. `-> Bool`
    ScratchFull,
    /// [`weft_core::hash::hash_bytes`] for Bytes, `hash_word` for Int. `T -> Int`
    Hash(Value),
    /// [`weft_core::hash::mix`]. `Int, Int -> Int`
    HashMix(Value, Value),
    /// The binary logarithm, rounded down; 0 for values below 1. `Int -> Int`
    Log2(Value),
    /// Whether the address (4 or 16 bytes) is in the prefix (an address and one byte of length). False if the sizes
    /// differ or the length exceeds the address. `Bytes, Bytes -> Bool`
    InPrefix(Value, Value),
    /// Whether the address is in one of these prefixes, as for [`Op::InPrefix`]. `Bytes -> Bool`
    InPrefixes(Value, Vec<Vec<u8>>),

    // Native functions (`weft_core::native`).
    /// Calls a native function. The result is the zero of its type if the function returns NULL, an error or another
    /// type. `T... -> T`
    Native(NativeId, Vec<Value>),
    /// Whether the [`Op::Native`] with this result returned NULL. `T -> Bool`
    NativeNull(Value),
    /// Whether the [`Op::Native`] with this result failed. `T -> Bool`
    NativeFailed(Value),

    // The tuple.
    /// The column's value, or its type's zero if NULL. `-> T`
    Input(InputId),
    /// The target of the last [`Terminator::Redirect`] of the pass, by an earlier stage or element; empty without one.
    /// `-> Bytes`
    Egress,
    /// Whether the column is not NULL. `-> Bool`
    InputPresent(InputId),
    /// As [`Op::Input`] for a column that is derived from the whole message (its payload or its size), after this pass
    /// may have changed fields: the value for the message with the changes so far, uncompressed. If the message cannot
    /// be written, the result is zero or empty, and [`Op::ScratchFull`] becomes true. `-> T`
    Derived(InputId),
    /// Sets the column, for later reads in this pass and on the wire. `T ->`
    SetInput(InputId, Value),
    /// Removes the column from the wire: it becomes NULL, or its type's zero if it is not nullable.
    ClearInput(InputId),
    /// Sets a header or trailer of the answer of an ABORT. `Bytes ->`
    SetAnswer(NameId, Value),
    /// Sets a field of the message of a REPLY. `T ->`
    SetReply(NameId, Value),
    /// Changes the headers of the frame, with a value for each parameter of the
    /// [`HeaderChangeDecl`](crate::program::HeaderChangeDecl). Inputs keep their values; the engine parses the frame
    /// again for later elements. `T... ->`
    ChangeHeaders(HeaderChangeId, Vec<Value>),
    // The frame, only in PARSE: the content of [`weft_core::abi::REGION_BODY`].
    /// The length of the frame in bytes. `-> Int`
    FrameLen,
    /// The unsigned integer in 1 to 8 bytes from an offset; 0 if they exceed the frame. `Int -> Int`
    FrameGet(Value, u8, Endian),
    /// The sum of the 16-bit words in a number of bytes from an offset, folded to 16 bits: the internet checksum (RFC
    /// 1071) before inversion. Words are big-endian; an odd byte at the end is an upper half. 0 if the bytes exceed the
    /// frame. `Int, Int -> Int`
    FrameSum(Value, Value),
    /// Sets the [`weft_core::abi::Slot`] of an input and makes it present. The second word may be missing for a number
    /// whose position is never used; its content is then undefined. `Int, Int? ->`
    Give(InputId, Value, Option<Value>),

    /// `now()`. `-> Int`
    Now,
    /// `rand()`: uniform in [0, 1), by [`weft_core::hash::draw`] for the pass and this call site. `-> Float`
    Rand(u64),

    // The call's row and scalar variables.
    /// `-> T`
    CallGet(CallId),
    /// `T ->`. With `journal`, it is undone if the element fails. Bytes that are too long for the cell are ignored.
    CallSet(CallId, Value, Journal),
    /// `-> T`
    VarGet(VarId),
    /// `T ->`
    VarSet(VarId, Value, Journal),
    /// Adds to this worker's part of a MERGE variable, or takes the maximum or minimum with it. `Int ->`
    VarMerge(VarId, Value, Journal),
    /// The merged value of a MERGE variable, in `ON EVERY` only. `-> Int`
    VarMerged(VarId),
    /// Resets the merged value of a MERGE variable to its start, in `ON EVERY` only. SUM adds the difference to this
    /// worker's part; MAX and MIN set all parts to the start.
    VarReset(VarId),

    // Tables. A row is valid until the next Insert or Remove on the same table. Writes to no row do nothing (SetColumn
    // returns false), and all columns of no row are NULL.
    /// The key of several columns, in order, by [`weft_core::table`]'s encoding. `T... -> Bytes`
    Key(Vec<Value>),
    /// The row with this key, or no row. The key has the type of a single key column (a Float by its bits); for several
    /// columns it is Bytes, by [`Op::Key`]. `Key -> Row`
    Find(TableId, Value),
    /// The first matching row of a replicated table, or no row. The operands are a value for each part of the
    /// [`MatchDecl`](crate::program::MatchDecl) and, for nullable parts, whether it is NULL. [`weft_core::matching`]
    /// defines the order of rows. `(T, Bool?)... -> Row`
    Match(TableId, MatchId, Vec<(Value, Option<Value>)>),
    /// `Row -> Bool`
    IsRow(Value),
    /// Inserts a row; the program has searched for the key and found none. No row if the table is full and rejects, or
    /// the key is too long. The columns hold the defaults of their `ColumnSpec`. `Key -> Row`
    Insert(TableId, Value, Journal),
    /// `Row ->`
    Remove(TableId, Value, Journal),
    /// Records a write (`age counts from the last write`). This and TouchRead are always journalled, unless nothing in
    /// the function can undo them: a back end then omits the journal. `Row ->`
    Touch(TableId, Value),
    /// Records a read (for LRU and ON ACCESS). `Row ->`
    TouchRead(TableId, Value),
    /// `Row -> T`; zero if NULL or no row. Key columns can be read too.
    Column(TableId, Value, ColumnId),
    /// Whether the column is NULL. `Row -> Bool`
    ColumnIsNull(TableId, Value, ColumnId),
    /// Sets the column. `Row, T -> Bool`: false, without a change, if the bytes are too long.
    SetColumn(TableId, Value, ColumnId, Value, Journal),
    /// `Row ->`
    SetColumnNull(TableId, Value, ColumnId, Journal),
    /// Increments a counter in a column of bytes, by [`weft_core::table::Table::count_into`]. `Row, Int ->`
    CountInto(TableId, Value, ColumnId, Value, Journal),
    /// The number of rows. `-> Int`
    Count(TableId),
    /// The next row at or after a cursor: 0 to begin, or the result of [`Op::ScanNext`]. `Int -> Row`
    ScanRow(TableId, Value),
    /// The expired or evicted row for which this TIMEOUT runs. It is out of the table and can only be read. No row in
    /// passes without one. `-> Row`
    ExpiredRow(TableId),
    /// The cursor behind a row, which may have been removed since; 0 for no row. `Row -> Int`
    ScanNext(TableId, Value),
    /// Locks the key's stripe, or the whole table. A handler holds at most one lock of a table: a second Lock of that
    /// table does nothing, so a handler with several keys locks the whole table. The lock is released when the handler
    /// ends. `Key ->`
    Lock(TableId, Option<Value>),
    /// Locks the scalar variables, unless this handler holds the lock. The lock is released when the handler ends.
    LockVars,

    // Out.
    /// Emits a row to a sink: values and, for nullable cells, whether they are NULL. `(T, Bool?)... ->`
    Emit(SinkId, Vec<(Value, Option<Value>)>),
    /// Delays the tuple by a number of nanoseconds (negative is 0); several delays add up. `Int ->`
    Delay(Value),
    /// Sets a mark of the tuple for later queues. `Int ->`
    Mark(Mark, Value),
    /// Sends a copy of the tuple to a cluster or endpoint. `Bytes ->`
    Mirror(Value),
    /// Undoes everything that this handler did in this pass: edits, rows, actions, and journalled writes. It begins an
    /// `ON ERROR` handler. It counts nothing and releases no lock. Rows and scratch bytes from before it must not be
    /// used after it.
    RollBack,
}

/// Whether a write is journalled so that it can be undone. Lowering requests it where an error may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Journal {
    /// Not journalled: nothing can fail after the write.
    No,
    /// Journalled before the write.
    Yes,
}

/// The signedness of a 64-bit operand.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Signed {
    Yes,
    No,
}

/// The byte order of a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endian {
    /// The most significant byte first, as on most wires.
    Big,
    /// The least significant byte first.
    Little,
}

/// Operations on two integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum IntOp {
    Add,
    Sub,
    Mul,
    SDiv,
    UDiv,
    SRem,
    URem,
    And,
    Or,
    Xor,
    /// The count is modulo 64.
    Shl,
    /// Logical; the count is modulo 64.
    Shr,
    SMin,
    SMax,
    UMin,
    UMax,
}

/// Comparisons of two integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum IntCmp {
    Eq,
    Ne,
    SLt,
    SLe,
    ULt,
    ULe,
}

/// Operations on two floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum FloatOp {
    Add,
    Sub,
    Mul,
    Div,
    /// The lesser; NaN if either is NaN; -0 is less than +0 (IEEE 754-2019 minimum, Cranelift's fmin).
    Min,
    /// The greater, as Min.
    Max,
}

/// Operations on one float.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum FloatUnaryOp {
    Neg,
    Abs,
    Floor,
    Ceil,
    /// To the nearest integer, ties to even.
    Round,
    Sqrt,
}

/// Comparisons of two floats.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum FloatCmp {
    Eq,
    /// Less or greater: false if either is NaN, as for the others.
    Ne,
    Lt,
    Le,
}

/// Operations on two booleans.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum BoolOp {
    And,
    Or,
    Xor,
}

/// Comparisons of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum BytesCmp {
    Eq,
    Ne,
    /// Lexicographic.
    Lt,
    Le,
    /// The first begins with the second.
    StartsWith,
    /// The first ends with the second.
    EndsWith,
    /// The second occurs somewhere in the first.
    Contains,
    /// SQL LIKE: the second is a pattern with `%` and `_`. An `_` matches one UTF-8 character; an invalid byte counts
    /// as one character. A pattern that is not UTF-8 matches nothing.
    Like,
}

/// A jump: a block and its arguments.
#[derive(Clone, Debug, PartialEq)]
pub struct Jump {
    /// The target.
    pub block: BlockId,
    /// One argument for each parameter.
    pub args: Vec<Value>,
}

/// A terminator. Terminators other than jumps end the handler; all of them except Fail commit its writes.
///
/// If OPEN and REQUEST of an element run in one pass, each is a handler of its own: the first one commits before the
/// second begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Terminator {
    /// An unfinished block; the verifier refuses it.
    #[default]
    Missing,
    /// Continues at another block.
    Jump(Jump),
    /// Continues at the first target if the Bool is true, else at the second.
    Branch(Value, Jump, Jump),
    /// Continues with the next element of the segment.
    Forward,
    /// As Forward, but the element does not count the tuple as seen, because it is on another path.
    Skip,
    /// As Forward, and counts the tuple as diverted.
    Steer {
        /// The source line.
        line: u32,
    },
    /// Ends the pass and drops the tuple.
    Drop {
        /// The source line.
        line: u32,
    },
    /// Ends the pass with a status and an optional text.
    Abort {
        /// The status.
        status: StatusOperand,
        /// The message for the caller, Bytes.
        text: Option<Value>,
        /// The source line.
        line: u32,
    },
    /// Ends the pass with an answer; [`Op::SetReply`] has set its fields.
    Reply {
        /// The source line.
        line: u32,
    },
    /// Sets the target of the tuple and continues with the next element; the last REDIRECT of a pass wins.
    Redirect {
        /// The name of the cluster or endpoint, Bytes.
        to: Value,
        /// The source line.
        line: u32,
    },
    /// The element failed without an `ON ERROR`: everything it did is undone, and the chain's failure mode decides.
    Fail {
        /// An Int: the code of a [`Fault`]; an unknown code is [`Fault::FunctionFailed`].
        fault: Value,
        /// The source line.
        line: u32,
    },
}

/// The status of an ABORT: constant, or computed as an Int code; an unknown code is UNKNOWN.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusOperand {
    /// A constant status.
    Known(Status),
    /// A computed code.
    Computed(Value),
}

impl Ty {
    /// The representation of a type of the language.
    pub fn of(ty: Type) -> Self {
        match ty.repr() {
            Repr::Bool => Self::Bool,
            Repr::Int => Self::Int,
            Repr::Float => Self::Float,
            Repr::Bytes => Self::Bytes,
        }
    }
}

impl Op {
    /// Whether the operation may allocate scratch, for a result of this type.
    pub fn takes_scratch(&self, result: Option<Ty>, ty: impl Fn(Value) -> Ty) -> bool {
        let is_bytes = |value: &Value| ty(*value) == Ty::Bytes;
        match self {
            Self::Concat(_)
            | Self::Lower(_)
            | Self::Upper(_)
            | Self::IntToText(..)
            | Self::FloatToText(_)
            | Self::Key(_)
            | Self::Derived(_)
            | Self::Mirror(_) => true,
            Self::Column(..) | Self::CallGet(_) | Self::Native(..) => result == Some(Ty::Bytes),
            Self::SetInput(_, value) | Self::SetAnswer(_, value) | Self::SetReply(_, value) => {
                is_bytes(value)
            }
            Self::Emit(_, cells) => cells.iter().any(|(cell, _)| is_bytes(cell)),
            Self::ChangeHeaders(_, parts) => parts.iter().any(is_bytes),
            _ => false,
        }
    }

    /// The type of all operands and the type of the result, for an operation that is a function of words of one type.
    /// None for all others, and for [`Op::Select`] and [`Op::Hash`], which take values of several types.
    pub fn word_types(&self) -> Option<(Ty, Ty)> {
        use Ty::{Bool, Float, Int};
        Some(match self {
            Self::BoolConst(_) | Self::BoolBinary(..) | Self::Not(_) => (Bool, Bool),
            Self::BoolToInt(_) => (Bool, Int),
            Self::IntConst(_) | Self::IntBinary(..) | Self::HashMix(..) | Self::Log2(_) => (Int, Int),
            Self::Overflows(..) | Self::IntCompare(..) | Self::InRange(..) => (Int, Bool),
            Self::IntToFloat(..) | Self::FloatOfBits(_) => (Int, Float),
            Self::FloatConst(_) | Self::FloatBinary(..) | Self::FloatUnary(..) => (Float, Float),
            Self::FloatCompare(..) | Self::FloatFits(..) => (Float, Bool),
            Self::FloatToInt(..) => (Float, Int),
            _ => return None,
        })
    }
}

impl Terminator {
    /// Lists the jumps of the terminator.
    pub fn jumps(&self) -> Vec<&Jump> {
        match self {
            Self::Jump(jump) => vec![jump],
            Self::Branch(_, yes, no) => vec![yes, no],
            _ => Vec::new(),
        }
    }

    /// The blocks to which it may jump.
    pub fn targets(&self) -> Vec<usize> {
        self.jumps().into_iter().map(|jump| jump.block.0 as usize).collect()
    }

    /// Calls `visit` for each jump.
    pub(crate) fn each_jump_mut(&mut self, mut visit: impl FnMut(&mut Jump)) {
        match self {
            Self::Jump(jump) => visit(jump),
            Self::Branch(_, yes, no) => [yes, no].into_iter().for_each(visit),
            _ => {}
        }
    }

    /// Calls `visit` for each value that it or its jumps read.
    pub(crate) fn each_operand_mut(&mut self, visit: &mut impl FnMut(&mut Value)) {
        match self {
            Self::Branch(value, ..)
            | Self::Redirect { to: value, .. }
            | Self::Fail { fault: value, .. }
            | Self::Abort { status: StatusOperand::Computed(value), .. } => visit(value),
            _ => {}
        }
        if let Self::Abort { text: Some(text), .. } = self {
            visit(text);
        }
        self.each_jump_mut(|jump| jump.args.iter_mut().for_each(&mut *visit));
    }

    /// The values that it reads itself, without arguments of jumps.
    pub fn own_operands(&self) -> Vec<Value> {
        match self {
            Self::Branch(value, ..) | Self::Redirect { to: value, .. } | Self::Fail { fault: value, .. } => {
                vec![*value]
            }
            Self::Abort { status: StatusOperand::Computed(code), text, .. } => {
                [*code].into_iter().chain(*text).collect()
            }
            Self::Abort { text, .. } => text.iter().copied().collect(),
            _ => Vec::new(),
        }
    }

    /// The values that it reads, arguments of jumps included.
    pub fn operands(&self) -> Vec<Value> {
        let mut operands = self.own_operands();
        self.jumps().into_iter().for_each(|jump| operands.extend(&jump.args));
        operands
    }

    /// Whether the tuple continues to the next element.
    pub fn continues(&self) -> bool {
        matches!(self, Self::Forward | Self::Skip | Self::Steer { .. } | Self::Redirect { .. })
    }

    /// The source line of a verdict; 0 for other terminators.
    pub fn line(&self) -> u32 {
        match self {
            Self::Drop { line }
            | Self::Abort { line, .. }
            | Self::Reply { line }
            | Self::Redirect { line, .. }
            | Self::Steer { line }
            | Self::Fail { line, .. } => *line,
            Self::Missing | Self::Jump(_) | Self::Branch(..) | Self::Forward | Self::Skip => 0,
        }
    }
}

impl Function {
    /// The type of a value of this function.
    pub fn ty(&self, value: Value) -> Ty {
        self.types[value.0 as usize]
    }

    /// The operation that defines each value; None for parameters.
    pub fn definitions(&self) -> Vec<Option<&Op>> {
        let mut definitions = vec![None; self.types.len()];
        for inst in self.insts() {
            if let Some(result) = inst.result {
                definitions[result.0 as usize] = Some(&inst.op);
            }
        }
        definitions
    }

    /// The instructions of all blocks.
    pub fn insts(&self) -> impl Iterator<Item = &Inst> {
        self.blocks.iter().flat_map(|block| &block.insts)
    }
}

/// The code of a fault as an operand.
pub fn fault_code(fault: Fault) -> i64 {
    i64::from(fault.code())
}
