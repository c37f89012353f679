//! The limits of the language and of compiled programs. Those of a protocol stand beside its code.

/// Input columns (message fields, headers, metadata) that one chain may read or write in one direction.
pub const INPUTS_MAX: usize = 256;
/// Bytes of a `LIKE` pattern that is a column of a row.
pub const LIKE_BYTES_MAX: u32 = 256;
/// Elements in one chain.
pub const ELEMENTS_MAX: usize = 64;
/// Bytes of an `ENDPOINT` value in a table.
pub const ENDPOINT_BYTES_MAX: u32 = 108;
/// Bytes that one pass of one tuple may make: concatenated text, results of functions, edits, sink rows. Beyond it is
/// an error value. It is room for sixteen transformations of a message of 4 MiB, the longest unless an option says
/// otherwise. A worker reserves as much address space once, and memory only for what its passes have filled.
pub const SCRATCH_BYTES_MAX: usize = 64 << 20;
/// The least that an outcome may have for its scratch, as those of tests do, so that passes fill it.
pub const SCRATCH_BYTES_MIN: usize = 64 << 10;
/// Rows that a table may declare.
pub const TABLE_ROWS_MAX: u64 = 1 << 28;
/// Bytes of one key.
pub const KEY_BYTES_MAX: usize = 4096;
/// Bytes of one table row, key included.
pub const ROW_BYTES_MAX: usize = 64 << 10;
/// Rows that one `SCAN` may visit.
pub const SCAN_ROWS_MAX: u64 = 1 << 20;
/// Elements of a list of a message that may be looked at: what is read of them is collected for each message.
pub const LIST_ELEMENTS_MAX: u64 = 1 << 14;
/// Operations that a handler may take at worst, each scan counted with all its rows: nobody else's call waits longer
/// for a worker than about a second. One scan of [`SCAN_ROWS_MAX`] rows is well within it, one in another is not.
pub const HANDLER_OPS_MAX: u64 = 100_000_000;

/// Ports of a group.
pub const GROUP_MEMBERS_MAX: usize = 64;

/// The weights of all ports of a group together.
pub const GROUP_WEIGHTS_MAX: u16 = 256;

/// Deepest nesting of parentheses, `CASE`, `IF` and `SCAN` that the parser follows.
pub const NESTING_MAX: u32 = 64;
/// Greatest height of an expression tree. `a + b + c` has height 3: it leans to the left without any parenthesis,
/// and whatever walks the tree by recursion relies on this number.
pub const EXPR_HEIGHT_MAX: u32 = 256;
/// Values in the list of an `IN (...)`. More belong in a table.
pub const LIST_ITEMS_MAX: usize = 16_384;
/// Arguments of a function.
pub const ARGUMENTS_MAX: usize = 256;
/// `WHEN` arms of a `CASE`. More belong in a table.
pub const CASE_ARMS_MAX: usize = 4096;
/// Conditions of an `IF`, those of its `ELSIF`s included. More belong in a table.
pub const IF_ARMS_MAX: usize = 4096;
/// Joined rows that are in sight at one place, those of one SELECT among them.
pub const JOINS_MAX: usize = 64;
/// What the code of one chain for one event may take, all its handlers together, in the steps of
/// `weft_ir::size`: a compiler takes a few seconds for as much.
pub const SEGMENT_STEPS_MAX: usize = 1 << 16;
/// The same of all chains and conditions of a program.
pub const PROGRAM_STEPS_MAX: usize = 1 << 20;
/// The stack of a thread that checks or compiles programs. It is address space, of which a program of the greatest
/// depth touches a part.
pub const COMPILE_STACK_BYTES: usize = 64 << 20;
