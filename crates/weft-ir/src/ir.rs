//! Functions in static single assignment form.
//!
//! A function is one handler of one element instance. It has basic blocks with parameters; block 0 is the entry
//! and has none. Every instruction is total: it has a result for all inputs, and those that could go wrong come
//! with a predicate that tells when they did ([`Op::Overflows`] beside [`Op::IntBinary`]). So NULL, unknown and
//! error values of the language are ordinary booleans here, and there is nothing that a back end could do
//! differently.
//!
//! Control flow has no back edges but into blocks with [`Block::scan_rows_max`], so cost is bounded.
//!
//! # The scratch
//!
//! A pass may make [`Outcome::scratch_max`](weft_core::abi::Outcome::scratch_max) bytes. So that all back ends agree
//! on when it is full, the room that each operation takes is part of its meaning:
//! * [`Op::Concat`], [`Op::Lower`], [`Op::Upper`], [`Op::IntToText`], [`Op::FloatToText`], [`Op::Key`], and
//!   [`Op::Column`] and [`Op::CallGet`] of bytes take the length of their result;
//! * [`Op::SetInput`], [`Op::SetAnswer`], [`Op::SetReply`], [`Op::Emit`], [`Op::Mirror`] and [`Op::ChangeHeaders`] take the
//!   length of each Bytes operand, in order (NULL cells of an Emit take none);
//! * [`Op::Native`] of bytes takes the length of its result;
//! * [`Op::Derived`] of bytes takes the length of its result where the message is changed;
//! * nothing else takes room; the text of an ABORT or REDIRECT does not.
//!
//! What finds no room is empty in its place, and [`Op::ScratchFull`] turns true. [`Op::RollBack`] and
//! [`Terminator::Fail`] give back what the handler took, as `Outcome::roll_back` does.

use weft_core::Status;
use weft_core::abi::Fault;
use weft_core::marks::Mark;
use weft_core::types::{Repr, Type};

/// A value: the result of an instruction, or a block parameter. Unique within its function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value(pub u32);

/// A block of its function; 0 is the entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BlockId(pub u32);

/// The type of a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ty {
    /// 0 or 1.
    Bool,
    /// 64 bits; the operation says whether they are signed.
    Int,
    /// IEEE 754 binary64.
    Float,
    /// A run of bytes that stays as it is until the pass ends.
    Bytes,
    /// A table row, or none.
    Row,
}

/// A function.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Function {
    /// For people: `acl.request`.
    pub name: String,
    /// The blocks; block 0 is the entry.
    pub blocks: Vec<Block>,
    /// The type of each value, indexed by value.
    pub types: Vec<Ty>,
}

/// A basic block.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Block {
    /// Values that each jump here must give.
    pub params: Vec<Value>,
    /// What is done, in order.
    pub insts: Vec<Inst>,
    /// How it ends.
    pub end: Terminator,
    /// This block may be jumped to from blocks that it dominates: it is the head of a `SCAN` that visits at most
    /// this many rows, or of a look at a list of at most so many elements.
    pub scan_rows_max: Option<u64>,
}

/// An instruction.
#[derive(Clone, Debug, PartialEq)]
pub struct Inst {
    /// The value that it defines; None for instructions that are done for their effect.
    pub result: Option<Value>,
    /// What it does.
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

/// A way to match the rows of a table, an index into [`crate::program::ChainProgram::matches`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct MatchId(pub u16);

/// A change of the structure of frames, an index into [`crate::program::ChainProgram::header_changes`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct HeaderChangeId(pub u16);

/// A native function of the chain, an index into [`crate::program::ChainProgram::natives`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NativeId(pub u16);

/// What an instruction does. Operands are listed in order; the comment gives `operand types -> result type`.
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
    /// The row that is none. `-> Row`
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

    // Floats. Results are as IEEE 754 says.
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
    /// Whether the bytes are a decimal integer of 64 bits (an optional `-` if signed, then digits only).
    /// `Bytes -> Bool`
    IsIntText(Signed, Value),
    /// The integer that the text says, 0 if [`Op::IsIntText`] is false. `Bytes -> Int`
    TextToInt(Signed, Value),
    /// Whether the bytes are a decimal number with a finite float: an optional `-`, digits, perhaps a point with digits
    /// behind it, perhaps `e` with an integer. `Bytes -> Bool`
    IsFloatText(Value),
    /// The float nearest to the number that the text says, 0 if [`Op::IsFloatText`] is false. `Bytes -> Float`
    TextToFloat(Value),
    /// The float that has these bits. `Int -> Float`
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
    /// The eight bytes from an offset as a little-endian integer; 0 if they do not all lie in the bytes.
    /// `Bytes, Int -> Int`
    WordAt(Value, Value),
    /// So many bytes from an offset; none if they do not all lie in the bytes. `Bytes, Int, Int -> Bytes`
    Part(Value, Value, Value),
    /// `Bytes, Bytes -> Bool`
    BytesCompare(BytesCmp, Value, Value),
    /// One after the other. Beyond the room of this pass: empty, and [`Op::ScratchFull`] turns true.
    /// `Bytes... -> Bytes`
    Concat(Vec<Value>),
    /// ASCII letters only. `Bytes -> Bytes`
    Lower(Value),
    /// ASCII letters only. `Bytes -> Bytes`
    Upper(Value),
    /// The characters of a text that lie wholly in a range: from byte offset (clamped to 0..=len) at most so many bytes
    /// (negative is 0). What it cuts of a character is left out at both ends, three bytes at most, so that text stays
    /// text. `Bytes, Int, Int -> Bytes`
    Slice(Value, Value, Value),
    /// Whether some operation of this handler found no room in the scratch, since the handler began or its last
    /// [`Op::RollBack`]. `-> Bool`
    ScratchFull,
    /// [`weft_core::hash::hash_bytes`] for Bytes, `hash_word` for Int. `T -> Int`
    Hash(Value),
    /// [`weft_core::hash::mix`]. `Int, Int -> Int`
    HashMix(Value, Value),
    /// Whether the address (4 or 16 bytes) lies in the prefix (address then one byte of length); false if the sizes
    /// do not belong together or the length is more than the address has bits. `Bytes, Bytes -> Bool`
    InPrefix(Value, Value),
    /// Whether the address lies in one of these prefixes, as [`Op::InPrefix`] says. `Bytes -> Bool`
    InPrefixes(Value, Vec<Vec<u8>>),

    // Native functions (`weft_core::native`).
    /// What the function gives for these arguments; the zero of its type if that is NULL, an error or of another type.
    /// `T... -> T`
    Native(NativeId, Vec<Value>),
    /// Whether the [`Op::Native`] that gave this value, and no other operation, gave NULL. `T -> Bool`
    NativeNull(Value),
    /// Whether the [`Op::Native`] that gave this value, and no other operation, failed. `T -> Bool`
    NativeFailed(Value),

    // The tuple.
    /// The column's value, its type's zero if NULL. `-> T`
    Input(InputId),
    /// The target of the last [`Terminator::Redirect`] of the pass, in a stage in front of this one or in an element
    /// before: empty if there is none. `-> Bytes`
    Egress,
    /// Whether the column is not NULL. `-> Bool`
    InputPresent(InputId),
    /// As [`Op::Input`] of a column that is derived from the whole message, its payload or its size, where a field of
    /// the message may have been changed in this pass: then that of the message as the changes so far leave it, which
    /// is inflated. If it cannot be written with them, zero or empty, and [`Op::ScratchFull`] turns true. `-> T`
    Derived(InputId),
    /// Changes the column, for this pass (each later Input and InputPresent) and on the wire. `T ->`
    SetInput(InputId, Value),
    /// Takes the column off the wire: it is NULL, or its type's zero where it is never NULL.
    ClearInput(InputId),
    /// Sets a header or trailer of the answer that an ABORT gives. `Bytes ->`
    SetAnswer(NameId, Value),
    /// Sets a field of the message that a REPLY gives. `T ->`
    SetReply(NameId, Value),
    /// Changes which headers the frame has, with a value for each of the
    /// [`HeaderChangeDecl`](crate::program::HeaderChangeDecl)'s parameters. Inputs stay what they were: whoever carries it out
    /// looks at the frame anew for the elements behind. `T... ->`
    ChangeHeaders(HeaderChangeId, Vec<Value>),
    // The frame, in PARSE alone: what is in [`weft_core::abi::REGION_BODY`].
    /// How many bytes it has. `-> Int`
    FrameLen,
    /// So many bytes (1 to 8) from an offset, as an unsigned integer; 0 if they do not all lie in the frame.
    /// `Int -> Int`
    FrameGet(Value, u8, Endian),
    /// The sum of the 16-bit words (big endian; a last odd byte is the upper half of one) of so many bytes from an
    /// offset, folded to 16 bits: the internet checksum (RFC 1071) before it is inverted. 0 if they do not all lie in
    /// the frame. `Int, Int -> Int`
    FrameSum(Value, Value),
    /// Gives an input its [`weft_core::abi::Slot`], and makes it present. Of a number of which nobody asks where it
    /// lies the slot has no second word: what is there may be anything. `Int, Int? ->`
    Give(InputId, Value, Option<Value>),

    /// `now()`. `-> Int`
    Now,
    /// `rand()`: uniform in [0, 1), by [`weft_core::hash::draw`] from the pass and this call site. `-> Float`
    Rand(u64),

    // The call's row and scalar variables.
    /// `-> T`
    CallGet(CallId),
    /// `T ->`. If `journal`, undone when the element fails. Bytes that the cell does not hold are left out.
    CallSet(CallId, Value, Journal),
    /// `-> T`
    VarGet(VarId),
    /// `T ->`
    VarSet(VarId, Value, Journal),
    /// Adds to (or takes the maximum or minimum with) this worker's part of a MERGE variable. `Int ->`
    VarMerge(VarId, Value, Journal),
    /// The merged value of a MERGE variable, in `ON EVERY` only. `-> Int`
    VarMerged(VarId),
    /// Sets the merged value of a MERGE variable to its start, in `ON EVERY` only. A SUM adds the difference to this
    /// worker's part; MAX and MIN set all parts to the start.
    VarReset(VarId),

    // Tables. A row is valid until the next Insert or Remove on the same table. What writes to the row that is
    // none does nothing (SetColumn gives false), and all columns of it are NULL.
    /// The key made of several columns, in their order, by [`weft_core::table`]'s encoding. `T... -> Bytes`
    Key(Vec<Value>),
    /// The row with this key, or none. The key has the type of the key column if there is one (a Float counts by
    /// its bits), else it is Bytes, by [`Op::Key`]. `Key -> Row`
    Find(TableId, Value),
    /// The first of the rows of a replicated table that match, or none: a value for each part of the
    /// [`MatchDecl`](crate::program::MatchDecl) and, where the part may be NULL, whether it is. The order of rows is
    /// that of [`weft_core::matching`]. `(T, Bool?)... -> Row`
    Match(TableId, MatchId, Vec<(Value, Option<Value>)>),
    /// `Row -> Bool`
    IsRow(Value),
    /// A new row; the program has looked and found none. None if the table is full and rejects, or the key is too
    /// long. Its columns hold the defaults of their `ColumnSpec` until they are set. `Key -> Row`
    Insert(TableId, Value, Journal),
    /// `Row ->`
    Remove(TableId, Value, Journal),
    /// A write happened (`age counts from the last write`). This and TouchRead are always noted in the journal (a back
    /// end leaves that out where nothing in the function undoes it). `Row ->`
    Touch(TableId, Value),
    /// A read happened (for LRU and ON ACCESS). `Row ->`
    TouchRead(TableId, Value),
    /// `Row -> T`; zero if NULL or no row. Key columns may be read, too.
    Column(TableId, Value, ColumnId),
    /// Whether the column is NULL. `Row -> Bool`
    ColumnIsNull(TableId, Value, ColumnId),
    /// Makes the column hold a value. `Row, T -> Bool`: false, and nothing is changed, if the bytes are too long.
    SetColumn(TableId, Value, ColumnId, Value, Journal),
    /// `Row ->`
    SetColumnNull(TableId, Value, ColumnId, Journal),
    /// Counts in a column of bytes, by [`weft_core::table::Table::count_into`]. `Row, Int ->`
    CountInto(TableId, Value, ColumnId, Value, Journal),
    /// How many rows. `-> Int`
    Count(TableId),
    /// The next row at or after this cursor: 0 to begin, or what [`Op::ScanNext`] gave for a row of the table.
    /// `Int -> Row`
    ScanRow(TableId, Value),
    /// The row that expired and for which this TIMEOUT runs: it is out of the table, and only read. The none of a pass
    /// that has none. `-> Row`
    ExpiredRow(TableId),
    /// The cursor behind a row, which may have been removed since; 0 for the row that is none. `Row -> Int`
    ScanNext(TableId, Value),
    /// Takes the lock of the key's stripe (or of the whole table). A handler holds one lock of a table at most:
    /// while it does, a further Lock of that table does nothing, so a handler that works on several keys locks
    /// the whole table. Released when the handler ends. `Key ->`
    Lock(TableId, Option<Value>),
    /// Takes the lock of the scalar variables, unless this handler holds it. Released when the handler ends.
    LockVars,

    // Out.
    /// A row for a sink: values and, where the cell may be NULL, whether it is. `(T, Bool?)... ->`
    Emit(SinkId, Vec<(Value, Option<Value>)>),
    /// Holds the tuple for so many nanoseconds (negative is 0); several add up. `Int ->`
    Delay(Value),
    /// Says something of the tuple to the queues behind. `Int ->`
    Mark(Mark, Value),
    /// Sends a copy of the tuple to a cluster or endpoint. `Bytes ->`
    Mirror(Value),
    /// Undoes everything that this handler did in this pass: edits, rows, actions, and the writes that were
    /// journalled. It is the head of an `ON ERROR` handler. It counts nothing and releases no lock. Rows, and bytes
    /// that took room in the scratch, are not used behind it if they were made before it.
    RollBack,
}

/// Whether a write is noted so that it can be undone. Lowering asks for it where an error may follow.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Journal {
    /// Written in place; nothing can fail behind it.
    No,
    /// Noted in the journal first.
    Yes,
}

/// How 64 bits are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Signed {
    Yes,
    No,
}

/// Which byte of a number comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Endian {
    /// The most significant, as on most wires.
    Big,
    /// The least significant.
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
    /// The count is taken modulo 64.
    Shl,
    /// Logical; the count is taken modulo 64.
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
    /// Less or greater: false if either is NaN, as the others.
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

/// Comparisons of two runs of bytes.
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
    /// The second stands somewhere in the first.
    Contains,
    /// SQL LIKE: the second is a pattern with `%` and `_` (one UTF-8 character; a byte of the first that begins no
    /// well-formed character counts as one). A pattern that is not UTF-8 matches nothing.
    Like,
}

/// A jump: the block and the values of its parameters.
#[derive(Clone, Debug, PartialEq)]
pub struct Jump {
    /// Where to.
    pub block: BlockId,
    /// One value for each parameter.
    pub args: Vec<Value>,
}

/// How a block ends. Those that are not jumps end the handler; each but Fail commits what was written.
///
/// Where OPEN and REQUEST of an element run in one pass, each is a handler of its own: the first commits before the
/// second begins.
#[derive(Clone, Debug, Default, PartialEq)]
pub enum Terminator {
    /// The block is not finished; the verifier refuses it.
    #[default]
    Missing,
    /// On to another block.
    Jump(Jump),
    /// By a Bool: if true the first, else the second.
    Branch(Value, Jump, Jump),
    /// On to the next element of the segment.
    Forward,
    /// As Forward, and the element is not counted as having seen the tuple: it stands on another way.
    Skip,
    /// As Forward, and counted as having sent the tuple another way.
    Steer {
        /// The source line.
        line: u32,
    },
    /// Ends the pass.
    Drop {
        /// The source line.
        line: u32,
    },
    /// Ends the pass with a status; the text is Bytes.
    Abort {
        /// Which.
        status: StatusOperand,
        /// The message for the caller.
        text: Option<Value>,
        /// The source line.
        line: u32,
    },
    /// Ends the pass; the fields were set by [`Op::SetReply`].
    Reply {
        /// The source line.
        line: u32,
    },
    /// Names the target (Bytes) of the message and goes on to the next element; the last REDIRECT of a pass wins.
    Redirect {
        /// The cluster's or endpoint's name.
        to: Value,
        /// The source line.
        line: u32,
    },
    /// The element failed and has no `ON ERROR`: all that it did is undone, and the chain's failure mode decides.
    Fail {
        /// An Int: the code of a [`Fault`]; an unknown code is [`Fault::FunctionFailed`].
        fault: Value,
        /// The source line.
        line: u32,
    },
}

/// The status of an ABORT: known when compiled, or computed (an Int: its code; an unknown code is UNKNOWN).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusOperand {
    /// Known.
    Known(Status),
    /// Computed.
    Computed(Value),
}

impl Ty {
    /// How a value of this type of the language is held.
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
    /// The values that it reads, in the order in which the text form writes them.
    pub fn operands(&self) -> Vec<Value> {
        match self {
            Self::BoolConst(_)
            | Self::IntConst(_)
            | Self::FloatConst(_)
            | Self::BytesConst(_)
            | Self::NoRow
            | Self::ScratchFull
            | Self::Egress
            | Self::Input(_)
            | Self::Derived(_)
            | Self::InputPresent(_)
            | Self::ClearInput(_)
            | Self::FrameLen
            | Self::Now
            | Self::Rand(_)
            | Self::CallGet(_)
            | Self::VarGet(_)
            | Self::VarMerged(_)
            | Self::VarReset(_)
            | Self::Count(_)
            | Self::ExpiredRow(_)
            | Self::Lock(_, None)
            | Self::LockVars
            | Self::RollBack => Vec::new(),
            Self::InRange(a, ..)
            | Self::FloatUnary(_, a)
            | Self::IntToFloat(_, a)
            | Self::FloatToInt(_, a)
            | Self::FloatFits(_, a)
            | Self::IntToText(_, a)
            | Self::FloatToText(a)
            | Self::IsIntText(_, a)
            | Self::TextToInt(_, a)
            | Self::IsFloatText(a)
            | Self::TextToFloat(a)
            | Self::FloatOfBits(a)
            | Self::BoolToInt(a)
            | Self::Not(a)
            | Self::Len(a)
            | Self::ByteAt(a, _)
            | Self::InPrefixes(a, _)
            | Self::Lower(a)
            | Self::Upper(a)
            | Self::Hash(a)
            | Self::SetInput(_, a)
            | Self::SetAnswer(_, a)
            | Self::SetReply(_, a)
            | Self::CallSet(_, a, _)
            | Self::VarSet(_, a, _)
            | Self::VarMerge(_, a, _)
            | Self::Find(_, a)
            | Self::IsRow(a)
            | Self::Insert(_, a, _)
            | Self::Remove(_, a, _)
            | Self::Touch(_, a)
            | Self::TouchRead(_, a)
            | Self::Column(_, a, _)
            | Self::ColumnIsNull(_, a, _)
            | Self::SetColumnNull(_, a, _, _)
            | Self::ScanRow(_, a)
            | Self::ScanNext(_, a)
            | Self::Lock(_, Some(a))
            | Self::Delay(a)
            | Self::Mark(_, a)
            | Self::Mirror(a)
            | Self::FrameGet(a, ..)
            | Self::NativeNull(a)
            | Self::NativeFailed(a)
            | Self::Give(_, a, None) => vec![*a],
            Self::IntBinary(_, a, b)
            | Self::Overflows(_, _, a, b)
            | Self::IntCompare(_, a, b)
            | Self::FloatBinary(_, a, b)
            | Self::FloatCompare(_, a, b)
            | Self::BoolBinary(_, a, b)
            | Self::BytesCompare(_, a, b)
            | Self::WordAt(a, b)
            | Self::HashMix(a, b)
            | Self::InPrefix(a, b)
            | Self::FrameSum(a, b)
            | Self::Give(_, a, Some(b))
            | Self::CountInto(_, a, _, b, _)
            | Self::SetColumn(_, a, _, b, _) => vec![*a, *b],
            Self::Select(a, b, c) | Self::Slice(a, b, c) | Self::Part(a, b, c) => vec![*a, *b, *c],
            Self::Concat(parts)
            | Self::Key(parts)
            | Self::Native(_, parts)
            | Self::ChangeHeaders(_, parts) => parts.clone(),
            Self::Emit(_, cells) | Self::Match(_, _, cells) => {
                cells.iter().flat_map(|(cell, null)| [Some(*cell), *null]).flatten().collect()
            }
        }
    }
}

impl Terminator {
    /// The jumps of it.
    pub fn jumps(&self) -> Vec<&Jump> {
        match self {
            Self::Jump(jump) => vec![jump],
            Self::Branch(_, yes, no) => vec![yes, no],
            _ => Vec::new(),
        }
    }

    /// The values that it reads, those that it gives to other blocks included.
    pub fn operands(&self) -> Vec<Value> {
        let own = match self {
            Self::Branch(by, ..) => Some(*by),
            Self::Abort { status, text, .. } => {
                let status = match status {
                    StatusOperand::Computed(code) => Some(*code),
                    StatusOperand::Known(_) => None,
                };
                return status.into_iter().chain(*text).collect();
            }
            Self::Redirect { to, .. } => Some(*to),
            Self::Fail { fault, .. } => Some(*fault),
            _ => None,
        };
        let given = self.jumps().into_iter().flat_map(|jump| jump.args.iter().copied());
        own.into_iter().chain(given).collect()
    }

    /// Whether the tuple goes on to the next element.
    pub fn continues(&self) -> bool {
        matches!(self, Self::Forward | Self::Skip | Self::Steer { .. } | Self::Redirect { .. })
    }

    /// The source line of a verdict, else 0.
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

    /// The instructions of all blocks.
    pub fn insts(&self) -> impl Iterator<Item = &Inst> {
        self.blocks.iter().flat_map(|block| &block.insts)
    }
}

/// The code of a fault as an operand.
pub fn fault_code(fault: Fault) -> i64 {
    i64::from(fault.code())
}
