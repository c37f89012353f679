//! The limits of the language and of compiled programs. Limits of a protocol are next to its code.

/// Input columns (message fields, headers, metadata) that one chain may read or write in one direction.
pub const INPUTS_MAX: usize = 256;
/// Bytes of a `LIKE` pattern that is a column of a row.
pub const LIKE_BYTES_MAX: u32 = 256;
/// Elements in one chain.
pub const ELEMENTS_MAX: usize = 64;
/// Bytes of an `ENDPOINT` value in a table.
pub const ENDPOINT_BYTES_MAX: u32 = 108;
/// Bytes that one pass of one tuple may make: concatenated text, results of functions, edits, sink rows. More is an
/// error value. The limit allows sixteen transformations of a message of 4 MiB, the default maximum. A worker reserves
/// this address space once and uses memory only as its passes fill it.
pub const SCRATCH_BYTES_MAX: usize = 64 << 20;
/// The smallest scratch of an outcome. Tests use it, so that passes fill the scratch.
pub const SCRATCH_BYTES_MIN: usize = 64 << 10;
/// Rows that a table may declare.
pub const TABLE_ROWS_MAX: u64 = 1 << 28;
/// Bytes of one key.
pub const KEY_BYTES_MAX: usize = 4096;
/// Bytes of one table row, key included.
pub const ROW_BYTES_MAX: usize = 64 << 10;
/// Rows that one `SCAN` may visit.
pub const SCAN_ROWS_MAX: u64 = 1 << 20;
/// Elements of a message list that a program may read. The engine collects them for each message.
pub const LIST_ELEMENTS_MAX: u64 = 1 << 14;
/// Operations of a handler in the worst case; each scan counts with all its rows. It bounds the wait of other calls for
/// the worker to about a second. One scan of [`SCAN_ROWS_MAX`] rows is well below it; nested scans of that size are
/// not.
pub const HANDLER_OPS_MAX: u64 = 100_000_000;

/// Ports of a group.
pub const GROUP_MEMBERS_MAX: usize = 64;

/// The sum of the weights of all ports of a group.
pub const GROUP_WEIGHTS_MAX: u16 = 256;

/// Nesting depth of parentheses, `CASE`, `IF` and `SCAN` in the parser.
pub const NESTING_MAX: u32 = 64;
/// Height of an expression tree. `a + b + c` has height 3: it grows to the left without parentheses. Code that walks
/// the tree by recursion relies on this limit.
pub const EXPR_HEIGHT_MAX: u32 = 256;
/// Values in the list of an `IN (...)`. More belong in a table.
pub const LIST_ITEMS_MAX: usize = 16_384;
/// Arguments of a function.
pub const ARGUMENTS_MAX: usize = 256;
/// `WHEN` arms of a `CASE`. More belong in a table.
pub const CASE_ARMS_MAX: usize = 4096;
/// Conditions of an `IF`, those of its `ELSIF`s included. More belong in a table.
pub const IF_ARMS_MAX: usize = 4096;
/// Joined rows visible at one place, including those of one SELECT.
pub const JOINS_MAX: usize = 64;
/// Code size of one chain for one event, over all its handlers, in steps of `weft_ir::size`. A compiler takes a few
/// seconds for this much.
pub const SEGMENT_STEPS_MAX: usize = 1 << 16;
/// Code size of all chains and conditions of a program, in the same steps.
pub const PROGRAM_STEPS_MAX: usize = 1 << 20;
/// The stack of a thread that checks or compiles programs. It is address space; even the deepest program touches only
/// part of it.
pub const COMPILE_STACK_BYTES: usize = 64 << 20;

// What holds between them, and for the types that count them.
const _: () = assert!(INPUTS_MAX <= u16::MAX as usize, "an edit has 16 bits for its input");
const _: () = assert!(ELEMENTS_MAX <= u16::MAX as usize, "an outcome has 16 bits for its element");
const _: () = assert!(SCRATCH_BYTES_MIN <= SCRATCH_BYTES_MAX && SCRATCH_BYTES_MAX <= u32::MAX as usize);
const _: () = assert!(KEY_BYTES_MAX <= ROW_BYTES_MAX, "a row contains its key");
const _: () = assert!(ROW_BYTES_MAX / 8 <= u16::MAX as usize, "a column's first word has 16 bits");
const _: () = assert!(SEGMENT_STEPS_MAX <= PROGRAM_STEPS_MAX, "a program contains its segments");
const _: () = assert!(GROUP_MEMBERS_MAX <= GROUP_WEIGHTS_MAX as usize, "each member may have a weight");
const _: () = assert!(NESTING_MAX < EXPR_HEIGHT_MAX, "a nested expression is also a high one");
