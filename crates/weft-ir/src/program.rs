//! A chain as the engine runs it.
//!
//! A [`ChainProgram`] holds the handlers of each element instance as functions over shared inputs, tables, variables
//! and sinks. The engine runs *segments*: lists of handlers for one event. A back end compiles each segment into one
//! piece of code; this is how fusion works.

use crate::ir::{Block, Endian, Function, Named, Op, TableId};
use std::sync::Arc;
use weft_core::abi::{REGION_BODY, REGION_HEADERS, REGION_META};
use weft_core::flow::flow_of;
use weft_core::frame::{Offload, packet_size};
use weft_core::inputs::InputSet;
use weft_core::limits::{ELEMENTS_MAX, INPUTS_MAX};
use weft_core::list::EntryKey;
use weft_core::matching::MatchSpec;
use weft_core::native::NativeDecl;
use weft_core::table::{RemovalReason, TableSpec};
use weft_core::types::{Repr, Type};
use weft_core::wire::header_change::HeaderChange;
use weft_core::wire::{FieldRef, Formats, LayerRef};
use weft_core::{Interval, Status, Value};

/// A checked and lowered chain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ChainProgram {
    /// The chain's name.
    pub name: String,
    /// The elements in the order of the request direction.
    pub elements: Vec<Element>,
    /// Inputs of OPEN and REQUEST: fields of the request message, request headers, metadata.
    pub request: Direction,
    /// Inputs of RESPONSE and CLOSE: fields of the response message, response headers, trailers, metadata.
    pub response: Direction,
    /// Tables of all elements.
    pub tables: Vec<TableDecl>,
    /// Declared matches over table rows.
    pub matches: Vec<MatchDecl>,
    /// Scalar variables of all elements.
    pub vars: Vec<VarDecl>,
    /// Sinks of all elements.
    pub sinks: Vec<SinkDecl>,
    /// The call's row: the `CALL` columns of all elements, in order.
    pub call: Vec<CallCell>,
    /// Names of headers and trailers that an ABORT's answer may carry.
    pub answers: Vec<AnswerName>,
    /// Fields that a REPLY's message may carry: dotted paths in the response message.
    pub replies: Vec<ReplyField>,
    /// The header changes that handlers make.
    pub header_changes: Vec<HeaderChangeDecl>,
    /// The native functions that handlers call, each with the constants of its calls.
    pub natives: Vec<NativeDecl>,
    /// The additional data of a chain on frames.
    pub frames: Option<Frames>,
}

/// How to find the inputs of a chain in a frame, and how to write changed inputs back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frames {
    /// Whether frames begin with an IP packet instead of a link header.
    pub is_ip: bool,
    /// Whether packets may have MPLS labels in front, which the parser skips.
    pub has_labels: bool,
    /// The function of [`Event::Parse`]: it sets the inputs with an [`InputLocation::Frame`]. It ends with FORWARD, or
    /// with DROP for a malformed frame; the line of the DROP is then an index into `checks`.
    ///
    /// The slot of a number holds the number and its offset in the frame. The slot of bytes holds their offset and
    /// length, as everywhere. The slot of a layer's presence holds 1 and the offset of the layer.
    pub parser: Function,
    /// The rules that make a frame malformed.
    pub checks: Vec<Check>,
    /// The check that overlapping fragments break, by IP version. The engine detects these frames before the parser.
    /// None if the chain does not track fragments of that version.
    pub overlaps: [Option<u32>; 2],
    /// How to write each of the request's inputs; None for inputs that do not change.
    pub field_writes: Vec<Option<FieldWrite>>,
    /// The inputs that a later fragment inherits from the first fragment of its packet. Writes to them are lost.
    pub inherited: InputSet,
    /// The same for fragments inside tunnels, then inside nested tunnels, and so on: at most
    /// [`CARRIED_MAX`](weft_core::wire::CARRIED_MAX). There are as many levels as the chain reads inherited fields of,
    /// in the tunnel or behind elements that remove it.
    pub carried: Vec<Carried>,
    /// The inputs that frames usually have, as a guess. Back ends may specialize code for these frames.
    pub usual: InputSet,
    /// The wire formats, if the chain reads a property of a whole frame ([`Meta::needs_formats`]).
    pub formats: Option<Arc<Formats>>,
}

/// How to track fragments inside tunnels.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// The input for the presence of the IP layer inside the tunnel.
    pub packet: u16,
    /// The input with the tunnel's id, if it has one: `vxlan.vni`.
    pub tunnel: Option<u16>,
    /// The inputs that a later fragment inherits from the first fragment of its packet, after both have left their
    /// tunnel.
    pub inherited: InputSet,
}

// An outcome names an element by 16 bits, and uses the number of elements for "none".
const _: () = assert!(ELEMENTS_MAX < u16::MAX as usize, "an element has a 16-bit index");
const _: () = assert!(INPUTS_MAX <= 8 * size_of::<InputSet>(), "a set holds all inputs");

/// The index of an IP version in [`Frames::overlaps`].
pub fn overlaps_at(version: u8) -> usize {
    usize::from(version != 4)
}

/// A rule of a wire format that a frame can break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The protocol.
    pub protocol: String,
    /// The fault: `truncated`, `version is not 4`, `checksum`.
    pub what: String,
    /// The line of its definition.
    pub line: u32,
}

/// How to write a changed input into the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FieldWrite {
    /// The layout of the field at the position in its slot.
    pub at: FieldLayout,
    /// The checksums that cover it; they are updated (RFC 1624).
    pub sums: Vec<Sum>,
}

/// The layout of a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldLayout {
    /// A number: `bits` bits above the lowest `shift` ones of `bytes` bytes.
    Bits {
        /// 1 to 8.
        bytes: u8,
        /// The number of bits below.
        shift: u8,
        /// 1 to 64.
        bits: u8,
        /// The byte order.
        endian: Endian,
    },
    /// Bytes of fixed length.
    Bytes,
}

impl FieldLayout {
    /// Whether the bits lie within the bytes, which are one to eight.
    pub fn is_sound(self) -> bool {
        match self {
            Self::Bits { bytes, shift, bits, .. } => {
                (1..=8).contains(&bytes)
                    && bits >= 1
                    && u16::from(shift) + u16::from(bits) <= 8 * u16::from(bytes)
            }
            Self::Bytes => true,
        }
    }
}

/// A checksum that covers a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sum {
    /// The input that holds the checksum; it is hidden if no element reads it. It is a [`FieldLayout::Bits`] of two
    /// bytes.
    pub input: u16,
    /// Whether zero means no checksum. Zero is then left alone, and a computed zero is written as all ones (RFC 768).
    pub zero_is_none: bool,
    /// Whether the field is only in the pseudo header: a checksum that a device still has to complete then covers it
    /// too.
    pub pseudo: bool,
    /// Other checksums of the same [`FieldWrite`] that this one covers if they lie behind it: a tunnel's checksum
    /// covers those of the packet inside.
    pub covers: InputSet,
}

/// A declared header change.
#[derive(Clone, Debug, PartialEq)]
pub struct HeaderChangeDecl {
    /// The types of its operands: those of the stack's fields in order, or the length of a CUT.
    pub params: Vec<Type>,
    /// The change. The inputs that it names are [`InputLocation::Layer`].
    pub what: HeaderChange,
}

impl Direction {
    /// The inputs that alias fields of these inputs.
    pub fn overlapping(&self, of: InputSet) -> InputSet {
        let fields = self.inputs.iter().enumerate().filter_map(|(at, input)| match &input.place {
            InputLocation::Frame(field) => Some((at, field)),
            _ => None,
        });
        let fields: Vec<_> = fields.collect();
        let is_other = |(at, field): &&(usize, &FieldRef)| {
            fields.iter().any(|(known, other)| of.contains(*known) && known != at && field.overlaps(other))
        };
        fields.iter().filter(is_other).map(|(at, _)| *at).collect()
    }
}

/// One direction of a chain.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Direction {
    /// The columns that the chain reads or writes, at most [`weft_core::limits::INPUTS_MAX`].
    pub inputs: Vec<Input>,
}

/// An element instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Element {
    /// The instance's name: `acl`, or the name after AS. It identifies the element's state across updates.
    pub name: String,
    /// The element's name.
    pub element: String,
    /// Its handlers.
    pub handlers: Handlers,
    /// `MANDATORY` in the chain.
    pub mandatory: bool,
    /// A failure of this element lets the tuple pass (`FAIL OPEN`), instead of ending the call with INTERNAL.
    pub fail_open: bool,
}

/// The handlers of an element on `rpc`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Handlers {
    /// Once per call, when it reaches the element. It sets the call's row to its defaults, so an element with a `CALL`
    /// row always has this handler.
    pub open: Option<Function>,
    /// For each request message.
    pub request: Option<Function>,
    /// For each response message.
    pub response: Option<Function>,
    /// Once per call, for each element whose OPEN forwarded.
    pub close: Option<Function>,
    /// Once per node in each interval.
    pub every: Vec<(Interval, Function)>,
    /// Once for each row that a table removes for this reason.
    pub timeouts: Vec<(RowRemoval, Function)>,
}

/// The row removals that a handler handles.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowRemoval {
    /// The table.
    pub table: TableId,
    /// The reason of the removal.
    pub why: RemovalReason,
}

/// An input column.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// The name in messages: `user`.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// It may be NULL.
    pub nullable: bool,
    /// Its location.
    pub place: InputLocation,
    /// Whether some handler changes it.
    pub written: bool,
}

/// The location of an input column.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum InputLocation {
    /// A field of the message, by its path from the top: `["user", "id"]`. The empty path is the message itself.
    Body(Vec<String>),
    /// The value of a map entry, by the map's path and the key. The last of several entries with the same key counts.
    Entry(Vec<String>, EntryKey),
    /// The presence of a nested message, by its path. It is not on the wire; setting one of its fields sets it.
    Present(Vec<String>),
    /// A list of the message in the form of [`weft_core::list`]. It cannot be set; setting another member of its oneof
    /// clears it.
    List(ListLocation),
    /// A header (in CLOSE: of the response headers), by its lower-case name.
    Header(String),
    /// A trailer, by its lower-case name; present in CLOSE.
    Trailer(String),
    /// A value from the engine.
    Meta(Meta),
    /// A key for the filter behind the chain's last element, by number. It is write-only.
    Key(u16),
    /// A field of a frame, or the presence of a layer; set by [`Frames::parser`].
    Frame(FieldRef),
    /// A layer of a frame for a [`HeaderChange`]; set by [`Frames::parser`] and read by no element. Its slot holds the
    /// offset of its header, then its size; the upper half of the second word is the end of the layer.
    Layer(LayerRef),
}

/// A repeated field or a map, and the members of its elements that are read.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListLocation {
    /// The field, by its path from the top.
    pub path: Vec<String>,
    /// The members that are read, by their paths within an element; the empty path is the element itself. A map entry
    /// has the fields `key` and `value`.
    pub members: Vec<Vec<String>>,
    /// Maximum number of elements. For a longer list, only its length is available.
    pub elements_max: u64,
}

impl InputLocation {
    /// The path in the message of a call, if it is part of one. What replaces that message part also replaces this
    /// input.
    pub fn path(&self) -> Option<&[String]> {
        match self {
            Self::Body(path) | Self::Entry(path, _) | Self::Present(path) => Some(path),
            Self::List(list) => Some(&list.path),
            _ => None,
        }
    }

    /// Whether it is the whole message of a call or derived from it, so that it changes with every field.
    pub fn is_derived(&self) -> bool {
        match self {
            Self::Body(path) => path.is_empty(),
            Self::Meta(meta) => *meta == Meta::Size,
            _ => false,
        }
    }

    /// The region that holds the bytes of such an input.
    pub fn region(&self) -> usize {
        match self {
            Self::Body(_) | Self::Entry(..) | Self::Frame(_) | Self::Layer(_) => REGION_BODY,
            Self::Header(_) | Self::Trailer(_) => REGION_HEADERS,
            Self::Meta(_) | Self::Key(_) | Self::Present(_) | Self::List(_) => REGION_META,
        }
    }
}

/// Values from the engine, or properties of a frame that need no parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Meta {
    /// `method`, TEXT: `/shop.Cart/Add`.
    Method,
    /// `peer`, TEXT: the client's address, `127.0.0.1:40112` or `unix`.
    Peer,
    /// `size`, SIZE: bytes of the message as it arrived; [`Op::Derived`] behind changes of its fields.
    Size,
    /// `index`, U64: the number of the message in its stream and direction, from 0.
    Index,
    /// `call_id`, U64: unique on this node.
    CallId,
    /// `status`, STATUS: how the call ended; in CLOSE.
    Status,
    /// `elapsed`, INTERVAL: since the call opened; in RESPONSE and CLOSE.
    Elapsed,
    /// `upstream`, TEXT?: the endpoint that serves the call; in RESPONSE and CLOSE.
    Upstream,
    /// `ended_by`, TEXT?: the element that ended the call; NULL if the server or the client did. In CLOSE.
    EndedBy,
    /// `version`, U64: the version of the program that handles this tuple.
    Version,
    /// `port`, TEXT: the port on which a frame arrived.
    Port,
    /// `packet_size`, U64: bytes of the longest packet that a frame stands for, without the link header.
    /// [`Meta::is_computed`].
    PacketSize,
    /// `flow`, U64: a 32-bit hash of addresses, protocol and ports. [`Meta::is_computed`].
    Flow,
    /// `is_icmp_error`, BOOL: whether a frame is an ICMP error, to which no ICMP error may be sent.
    /// [`Meta::needs_formats`].
    IsIcmpError,
    /// `is_intact`, BOOL: whether the checksums over its payload are correct. [`Meta::needs_formats`].
    IsIntact,
    /// `tunnel_depth`, U64: the number of tunnels around its innermost packet. [`Meta::needs_formats`].
    TunnelDepth,
    /// `meta.tag`, U32: user metadata of a frame for later elements, initially 0. [`Meta::user_meta_index`].
    Tag,
    /// `meta.label`, U32: likewise, for the state of its flow.
    Label,
    /// `meta.path`, U32: likewise, for its path.
    Path,
}

/// The formats of a program without any.
static NO_FORMATS: Formats = Formats { protocols: Vec::new(), roots: Vec::new() };

/// The user metadata of a frame: elements set it for later elements.
pub const USER_META: [Meta; 3] = [Meta::Tag, Meta::Label, Meta::Path];

impl Meta {
    /// The name in programs.
    pub fn name(self) -> &'static str {
        Named::name(self)
    }

    /// The index in [`USER_META`], if it is user metadata, which is not part of the frame.
    pub fn user_meta_index(self) -> Option<usize> {
        USER_META.iter().position(|meta| *meta == self)
    }

    /// Whether every frame has it, but no slot: code computes it on demand ([`Meta::compute`]), so that chains that do
    /// not read it pay nothing.
    pub fn is_computed(self) -> bool {
        matches!(self, Self::PacketSize | Self::Flow) || self.needs_formats()
    }

    /// Whether its computation needs the program's wire formats ([`Frames::formats`]).
    pub fn needs_formats(self) -> bool {
        matches!(self, Self::IsIcmpError | Self::IsIntact | Self::TunnelDepth)
    }

    /// Whether the engine writes it to a slot for each tuple. The port name needs no slot: it is the whole region
    /// [`weft_core::abi::REGION_META`] and the same for all frames of a batch.
    pub fn has_slot(self) -> bool {
        !self.is_computed() && self != Self::Port
    }

    /// Computes the property of a frame as a word.
    pub fn compute(self, frame: &[u8], offload: &Offload, of: &Frames) -> Option<u64> {
        match self {
            Self::PacketSize => Some(packet_size(frame, offload, of.is_ip) as u64),
            Self::Flow => Some(flow_of(frame, of.is_ip).flow.into()),
            _ => self.compute_by_formats(frame, offload, of.formats.as_deref().unwrap_or(&NO_FORMATS)),
        }
    }

    /// Computes a property that needs the wire formats, as a word.
    pub fn compute_by_formats(self, frame: &[u8], offload: &Offload, formats: &Formats) -> Option<u64> {
        match self {
            Self::IsIcmpError => Some(formats.is_error(frame).into()),
            Self::IsIntact => Some(formats.is_intact(frame, offload).into()),
            Self::TunnelDepth => Some(formats.tunnel_depth(frame)),
            _ => None,
        }
    }
}

/// A table of an element.
#[derive(Clone, Debug, PartialEq)]
pub struct TableDecl {
    /// The owner: the instance's name, or empty for a table shared by several (`CREATE TABLE`).
    pub owner: String,
    /// Keys, columns, limits. `TableSpec::columns` are the columns without the keys.
    pub spec: TableSpec,
    /// Its realisation (`docs/src/concepts/state.md`).
    pub realisation: Realisation,
    /// The initial rows from the program text: values of keys and columns, in order.
    pub rows: Vec<Vec<Value>>,
}

/// A declared match over the rows of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchDecl {
    /// The table; it is replicated.
    pub table: TableId,
    /// The tests and the order of its rows.
    pub spec: MatchSpec,
}

/// How a table provides "one table per node, linearizable per key".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Realisation {
    /// Filled by the controller, read without locks, replaced whole.
    Replicated,
    /// Locked by stripe of the key while an element works on it.
    Striped,
    /// Locked as a whole while an element works on it.
    Locked,
    /// One table for each worker (`PER WORKER`).
    PerWorker,
}

/// A scalar variable.
#[derive(Clone, Debug, PartialEq)]
pub struct VarDecl {
    /// The instance's name.
    pub owner: String,
    /// The variable's name.
    pub name: String,
    /// Its type; held in one word (no text).
    pub ty: Type,
    /// Its word in [`weft_core::abi::Parts::scalars`] (or `merged`, if it is declared MERGE). Lowering numbers words
    /// from 0. The engine renumbers them by name before it compiles, when it binds a program to existing state.
    pub word: u32,
    /// Its initial value.
    pub start: Value,
    /// The merge rule, if it is declared MERGE.
    pub merge: Option<Merge>,
}

/// The merge rule of a variable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Merge {
    Sum,
    Max,
    Min,
}

/// A sink.
#[derive(Clone, Debug, PartialEq)]
pub struct SinkDecl {
    /// The instance's name.
    pub owner: String,
    /// The sink's name.
    pub name: String,
    /// Its columns.
    pub columns: Vec<SinkColumn>,
    /// The destination of its rows.
    pub target: SinkTarget,
    /// The format of its rows.
    pub format: SinkFormat,
}

/// A column of a sink.
#[derive(Clone, Debug, PartialEq)]
pub struct SinkColumn {
    /// The name.
    pub name: String,
    /// The type.
    pub ty: Type,
}

/// The format of a sink's rows, one per line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SinkFormat {
    /// A JSON object.
    #[default]
    Json,
    /// Readable text: time, sink, and `column=value` for each column.
    Text,
}

/// The destination of a sink's rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SinkTarget {
    /// Standard output.
    Stdout,
    /// Appended to a file.
    File(String),
    /// The admin endpoint's metrics: columns of type TEXT are labels, numbers are values.
    Metrics,
    /// A table that the controller fills; its columns have the names of the sink's columns.
    Table {
        /// The instance's name, empty for a table that belongs to none.
        owner: String,
        /// The table's name.
        table: String,
        /// Whether rows with the keys are deleted instead of inserted.
        deletes: bool,
    },
}

impl SinkDecl {
    /// The name of the destination table, empty for another destination.
    pub fn sent_to(&self) -> &str {
        self.target.table().map_or("", |(_, table)| table)
    }
}

impl SinkTarget {
    /// The destination table: its instance (empty if it belongs to none) and its name.
    pub fn table(&self) -> Option<(&str, &str)> {
        match self {
            Self::Table { owner, table, .. } => Some((owner, table)),
            Self::Stdout | Self::File(_) | Self::Metrics => None,
        }
    }
}

/// A cell of the call's row.
#[derive(Clone, Debug, PartialEq)]
pub struct CallCell {
    /// The instance's name.
    pub owner: String,
    /// The column's name.
    pub name: String,
    /// Its type. A text cell is a `TEXT(n)`.
    pub ty: Type,
    /// The cell's first word in the row: a number takes one word; bytes take a word of length and the bytes.
    pub word: u32,
}

/// A header or trailer of an ABORT's answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AnswerName {
    /// The lower-case name.
    pub name: String,
}

/// A field of a REPLY's message.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ReplyField {
    /// Its path from the top of the response message; empty for the message itself.
    pub path: Vec<String>,
    /// The type of its values.
    pub ty: Type,
}

/// The handlers of a segment and their order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Event {
    /// OPEN of each element, in order: calls whose client streams.
    Open,
    /// OPEN and REQUEST of the first element, then of the second, and so on: calls with one request message.
    OpenRequest,
    /// REQUEST of each element, in order.
    Request,
    /// RESPONSE of each element, from the last to the first.
    Response,
    /// CLOSE of each element whose OPEN forwarded, from the last to the first.
    Close,
    /// The n-th EVERY of an element.
    Every(u16, u16),
    /// The n-th TIMEOUT of an element.
    Timeout(u16, u16),
    /// [`Frames::parser`], before the REQUEST of a frame.
    Parse,
}

/// The handler of an element that a function implements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names are the language's")]
pub enum Handler {
    Open,
    Request,
    Response,
    Close,
    Every,
    Timeout,
    Parse,
}

/// One handler of one element in a segment.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The element's index in the chain.
    pub element: u16,
    /// Its handler.
    pub function: &'a Function,
    /// Whether it is ON OPEN.
    pub opens: bool,
    /// Whether it counts the tuple as seen by the element: once, even if several handlers run for a call.
    pub counts: bool,
}

impl Element {
    /// The operations of its request handler.
    pub fn request_ops(&self) -> impl Iterator<Item = &Op> {
        self.handlers.request.iter().flat_map(Function::insts).map(|inst| &inst.op)
    }

    /// Collects the request inputs that the element reads.
    pub fn inputs_read(&self) -> InputSet {
        let seen = |op: &Op| match op {
            Op::Input(id) | Op::Derived(id) | Op::InputPresent(id) => Some(*id),
            _ => None,
        };
        self.request_ops().filter_map(seen).collect()
    }

    /// Collects the request inputs that the element writes.
    pub fn inputs_written(&self) -> InputSet {
        let set = |op: &Op| match op {
            Op::SetInput(id, _) | Op::ClearInput(id) => Some(*id),
            _ => None,
        };
        self.request_ops().filter_map(set).collect()
    }

    /// The request inputs that it reads or writes.
    pub fn inputs_used(&self) -> InputSet {
        self.inputs_read() | self.inputs_written()
    }
}

impl Handlers {
    /// All handlers with their kinds.
    pub fn all(&self) -> impl Iterator<Item = (Handler, &Function)> {
        let single = [
            (Handler::Open, &self.open),
            (Handler::Request, &self.request),
            (Handler::Response, &self.response),
            (Handler::Close, &self.close),
        ];
        let single = single.into_iter().filter_map(|(kind, function)| Some((kind, function.as_ref()?)));
        let every = self.every.iter().map(|(_, function)| (Handler::Every, function));
        single.chain(every).chain(self.timeouts.iter().map(|(_, function)| (Handler::Timeout, function)))
    }

    /// Whether an element with these handlers counts tuples in segments for `event`: request messages if it handles
    /// them, otherwise the tuples that it does handle.
    fn counts(&self, event: Event) -> bool {
        match event {
            Event::OpenRequest => self.request.is_some() || (self.response.is_none() && self.open.is_some()),
            Event::Request => self.request.is_some(),
            Event::Response => self.request.is_none() && self.response.is_some(),
            Event::Open => self.request.is_none() && self.response.is_none(),
            Event::Close => self.request.is_none() && self.response.is_none() && self.open.is_none(),
            Event::Parse => false,
            Event::Every(..) | Event::Timeout(..) => {
                let others = [&self.open, &self.request, &self.response, &self.close];
                others.iter().all(|handler| handler.is_none())
            }
        }
    }
}

impl ChainProgram {
    /// The handlers of a segment in the order in which they run.
    pub fn parts(&self, event: Event) -> Vec<Part<'_>> {
        if event == Event::Parse {
            let parser = self.frames.as_ref().map(|frames| &frames.parser);
            let element = self.elements.len() as u16;
            let part = |function| Part { element, function, opens: false, counts: false };
            return parser.map(part).into_iter().collect();
        }
        let mut parts = Vec::new();
        for (index, element) in self.in_order(event) {
            let handlers = &element.handlers;
            let chosen: [Option<&Function>; 2] = match event {
                Event::Open => [handlers.open.as_ref(), None],
                Event::OpenRequest => [handlers.open.as_ref(), handlers.request.as_ref()],
                Event::Request => [handlers.request.as_ref(), None],
                Event::Response => [handlers.response.as_ref(), None],
                Event::Close => [handlers.close.as_ref(), None],
                Event::Every(at, nth) => {
                    let every = (usize::from(at) == index).then(|| handlers.every.get(usize::from(nth)));
                    [every.flatten().map(|(_, f)| f), None]
                }
                Event::Timeout(at, nth) => {
                    let timeout = (usize::from(at) == index).then(|| handlers.timeouts.get(usize::from(nth)));
                    [timeout.flatten().map(|(_, f)| f), None]
                }
                Event::Parse => [None, None],
            };
            for (nth, function) in chosen.into_iter().flatten().enumerate() {
                let counts = nth == 0 && handlers.counts(event);
                let opens = handlers.open.as_ref().is_some_and(|open| core::ptr::eq(open, function));
                parts.push(Part { element: index as u16, function, opens, counts });
            }
        }
        parts
    }

    /// Reorders the elements, given their indices. Everything that belongs to an element refers to it by name, so
    /// nothing else changes.
    ///
    /// # Panics
    /// If `order` does not name each element once.
    pub fn reorder(&mut self, order: &[usize]) {
        let mut elements: Vec<Option<Element>> =
            core::mem::take(&mut self.elements).into_iter().map(Some).collect();
        assert_eq!(order.len(), elements.len(), "an order names each element once");
        let take = |at: &usize| elements[*at].take().expect("an order names each element once");
        self.elements = order.iter().map(take).collect();
    }

    /// Splits the chain before the elements with these ascending indices. Each part has its elements and all shared
    /// declarations.
    ///
    /// # Panics
    /// If the indices do not ascend, or exceed the chain.
    pub fn cut(&self, at: &[usize]) -> Vec<Self> {
        assert!(at.is_sorted(), "parts follow each other");
        assert!(at.last().is_none_or(|last| *last <= self.elements.len()), "parts end inside the chain");
        let ends = at.iter().copied().chain([self.elements.len()]);
        let mut from = 0;
        let part = |end| {
            let elements = self.elements[core::mem::replace(&mut from, end)..end].to_vec();
            Self { elements, ..self.clone() }
        };
        ends.map(part).collect()
    }

    /// The TIMEOUTs and EVICTs of all elements, each with its row removal.
    pub fn timeouts(&self) -> impl Iterator<Item = (Event, RowRemoval)> + '_ {
        self.elements.iter().enumerate().flat_map(|(at, element)| {
            let timeouts = element.handlers.timeouts.iter().enumerate();
            timeouts.map(move |(nth, (removal, _))| (Event::Timeout(at as u16, nth as u16), *removal))
        })
    }

    /// Whether a header change fragments the frame.
    pub fn is_fragment(&self, header_change: u16) -> bool {
        self.header_changes
            .get(usize::from(header_change))
            .is_some_and(|decl| decl.what == HeaderChange::Fragment)
    }

    /// Whether later elements see another frame than this element did: it changes headers, or sets a field that a later
    /// element knows by another name.
    pub fn needs_reparse_after(&self, element: usize) -> bool {
        let Some((own, behind)) = self.elements.get(element..).and_then(|rest| rest.split_first()) else {
            return false;
        };
        let known = behind.iter().fold(InputSet::EMPTY, |all, element| all | element.inputs_used());
        own.handlers.request.as_ref().is_some_and(forwards_changed_frame)
            || self.request.overlapping(own.inputs_written()).intersects(known)
    }

    /// Whether the pass continues when a handler of this element fails: the element is declared `FAIL OPEN`, or the
    /// event is CLOSE, which the other elements must still get.
    pub fn fails_open(&self, element: u16, event: Event) -> bool {
        event == Event::Close || self.elements.get(usize::from(element)).is_some_and(|e| e.fail_open)
    }

    /// The size of the call's row in words.
    pub fn call_words(&self) -> usize {
        self.call.last().map_or(0, |cell| cell.word as usize + cell_words(cell.ty))
    }

    /// Iterates over the elements in the order in which the event passes them: backwards for responses and closes.
    fn in_order(&self, event: Event) -> Box<dyn Iterator<Item = (usize, &Element)> + '_> {
        let forward = self.elements.iter().enumerate();
        match event {
            Event::Response | Event::Close => Box::new(forward.rev()),
            _ => Box::new(forward),
        }
    }
}

impl Handler {
    /// The kind of the handlers of a segment for this event. For OpenRequest, see [`Event::OpenRequest`].
    pub fn of(event: Event) -> Self {
        match event {
            Event::Open => Self::Open,
            Event::OpenRequest | Event::Request => Self::Request,
            Event::Response => Self::Response,
            Event::Close => Self::Close,
            Event::Every(..) => Self::Every,
            Event::Timeout(..) => Self::Timeout,
            Event::Parse => Self::Parse,
        }
    }

    /// Whether there is no tuple, as in EVERY and TIMEOUT.
    pub fn is_timed(self) -> bool {
        matches!(self, Self::Every | Self::Timeout)
    }

    /// The direction whose inputs the handler reads: request for OPEN, REQUEST and PARSE, response for RESPONSE and
    /// CLOSE, none for EVERY and TIMEOUT.
    pub fn direction(self, chain: &ChainProgram) -> Option<&Direction> {
        match self {
            Self::Open | Self::Request | Self::Parse => Some(&chain.request),
            Self::Response | Self::Close => Some(&chain.response),
            Self::Every | Self::Timeout => None,
        }
    }
}

impl Event {
    /// Whether the inputs are those of the request direction.
    pub fn is_request(self) -> bool {
        matches!(self, Self::Open | Self::OpenRequest | Self::Request | Self::Parse)
    }
}

/// Whether a handler forwards a frame after it has changed its headers. It does not if it then ends the pass, as for an
/// answer that is a copy.
fn forwards_changed_frame(function: &Function) -> bool {
    let is_reshaped = |block: &Block| block.insts.iter().any(|inst| matches!(inst.op, Op::ChangeHeaders(..)));
    let mut left: Vec<usize> =
        (0..function.blocks.len()).filter(|at| is_reshaped(&function.blocks[*at])).collect();
    let mut seen = vec![false; function.blocks.len()];
    while let Some(at) = left.pop() {
        if core::mem::replace(&mut seen[at], true) {
            continue;
        }
        let end = &function.blocks[at].end;
        if end.continues() {
            return true;
        }
        left.extend(end.jumps().into_iter().map(|jump| jump.block.0 as usize));
    }
    false
}

/// The size of a cell of the call's row in words.
pub fn cell_words(ty: Type) -> usize {
    match ty.repr() {
        Repr::Bytes => 1 + (ty.bytes_max().unwrap_or(0) as usize).div_ceil(8),
        _ => 1,
    }
}

/// The status with which a failed element ends a call.
pub const FAILED: Status = Status::Internal;
