//! A chain as the engine runs it.
//!
//! A [`ChainProgram`] holds the handlers of each element instance as functions over one set of inputs, tables,
//! variables and sinks. The engine runs *segments* of it: lists of handlers for one event, which a back end
//! compiles into one piece of code (that is all that fusion is here).

use crate::ir::{Block, Endian, Function, Op, TableId};
use std::sync::Arc;
use weft_core::flow::flow_of;
use weft_core::frame::{Offload, packet_size};
use weft_core::inputs::InputSet;
use weft_core::list::EntryKey;
use weft_core::matching::MatchSpec;
use weft_core::native::NativeDecl;
use weft_core::table::{Departure, TableSpec};
use weft_core::types::{Repr, Type};
use weft_core::wire::reshape::Reshape;
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
    /// How rows of tables are matched.
    pub matches: Vec<MatchDecl>,
    /// Scalar variables of all elements.
    pub vars: Vec<VarDecl>,
    /// Sinks of all elements.
    pub sinks: Vec<SinkDecl>,
    /// The call's row: the `CALL` columns of all elements, one after the other.
    pub call: Vec<CallCell>,
    /// Names of headers and trailers that an ABORT's answer may carry.
    pub answers: Vec<AnswerName>,
    /// Fields that a REPLY's message may carry: dotted paths in the response message.
    pub replies: Vec<ReplyField>,
    /// Changes of the structure of frames that handlers make.
    pub reshapes: Vec<ReshapeDecl>,
    /// Native functions that handlers call, each with what is known of its calls beforehand.
    pub natives: Vec<NativeDecl>,
    /// What a chain on frames has besides.
    pub frames: Option<Frames>,
}

/// How the inputs of a chain are found in a frame, and how those that it changes are written back.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Frames {
    /// Frames begin with an IP packet, and not with a link header.
    pub is_ip: bool,
    /// A packet may stand behind labels of MPLS, and the parser looks behind them.
    pub has_labels: bool,
    /// The function of [`Event::Parse`]: it gives the inputs that are [`Place::Frame`]. It ends with FORWARD, or, of a
    /// malformed frame, with DROP: its line is then an index into `checks`.
    ///
    /// A number's slot holds it, and where in the frame the bytes begin that hold it. A run of bytes has its offset and
    /// its length there, as everywhere. That a layer is there is 1, and where it begins.
    pub parser: Function,
    /// What makes a frame malformed.
    pub checks: Vec<Check>,
    /// Those of them that a fragment breaks which overlaps another, by the version of its IP; which frames do is known
    /// in front of the parser. None if the chain knows no fragments of that version.
    pub overlaps: [Option<u32>; 2],
    /// For each of the request's inputs: how it is written. None for those that do not change.
    pub stores: Vec<Option<Store>>,
    /// Inputs that a later fragment has from the first of its packet, as if it had the header itself. What is
    /// written there is lost.
    pub inherited: InputSet,
    /// The same of fragments that tunnels carry, then of those in a tunnel in a tunnel, and so on: at most
    /// [`CARRIED_MAX`](weft_core::wire::CARRIED_MAX), and as many as the chain asks for what only the first of them
    /// has, in the tunnel or behind elements that take them out.
    pub carried: Vec<Carried>,
    /// Inputs that frames usually have, which is a guess. Back ends may have code of its own for those that do.
    pub usual: InputSet,
    /// The wire formats, where the chain asks for what they say of a frame ([`Meta::is_of_formats`]).
    pub formats: Option<Arc<Formats>>,
}

/// How fragments are known that tunnels carry.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Carried {
    /// The input that says where the packet of IP begins that a tunnel carries: that such a layer is there.
    pub packet: u16,
    /// The input with the number that tells tunnels between two ends apart, if the tunnels have one: `vxlan.vni`.
    pub tunnel: Option<u16>,
    /// Inputs that a later fragment has from the first of its packet, as [`Frames::inherited`], which are those of one
    /// that has been taken out of its tunnel.
    pub inherited: InputSet,
}

/// The place of a version of IP in [`Frames::overlaps`].
pub fn overlaps_at(version: u8) -> usize {
    usize::from(version != 4)
}

/// A rule of a wire format that a frame can break.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Check {
    /// The protocol.
    pub protocol: String,
    /// What is wrong: `truncated`, `version is not 4`, `checksum`.
    pub what: String,
    /// The line of its definition.
    pub line: u32,
}

/// How a change of an input is written into the frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Store {
    /// Where it lies from what its slot says.
    pub at: StoreAt,
    /// The checksums that cover it, to be kept right (RFC 1624).
    pub sums: Vec<Sum>,
}

/// Where a field lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoreAt {
    /// A number: `bits` bits above the lowest `shift` ones of `bytes` bytes.
    Bits {
        /// 1 to 8.
        bytes: u8,
        /// How many bits are below.
        shift: u8,
        /// 1 to 64.
        bits: u8,
        /// Their order.
        endian: Endian,
    },
    /// A run of bytes, which keeps its length.
    Bytes,
}

impl StoreAt {
    /// Whether a number has the room that it is said to have.
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
    /// The input that is the checksum: a hidden one, if nobody reads it. It is a [`StoreAt::Bits`] of two bytes.
    pub input: u16,
    /// Zero means that there is none, and so is left alone; a sum that comes out as zero is written as all ones (RFC
    /// 768).
    pub zero_is_none: bool,
    /// The field is in the pseudo header alone, so that a checksum that the device is still to complete has it, too.
    pub pseudo: bool,
    /// Inputs that are checksums of the same [`Store`]: where they lie behind this one it covers them as well, as that
    /// of a tunnel covers those of the packet in it.
    pub covers: InputSet,
}

/// A change of the structure of frames.
#[derive(Clone, Debug, PartialEq)]
pub struct ReshapeDecl {
    /// The types of the values that it is given: those of the stack's fields in their order, or the bytes of a CUT.
    pub params: Vec<Type>,
    /// What it does. The inputs that it names are [`Place::Layer`].
    pub what: Reshape,
}

impl Direction {
    /// The inputs that are other names of fields of some of these.
    pub fn overlapping(&self, of: InputSet) -> InputSet {
        let fields = self.inputs.iter().enumerate().filter_map(|(at, input)| match &input.place {
            Place::Frame(field) => Some((at, field)),
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
    /// The columns that the chain reads or writes, [`weft_core::limits::INPUTS_MAX`] at most.
    pub inputs: Vec<Input>,
}

/// An element instance.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Element {
    /// The instance's name: `acl`, or what AS says. It identifies the element's state across updates.
    pub name: String,
    /// The element's name.
    pub element: String,
    /// The handlers that it has.
    pub handlers: Handlers,
    /// `MANDATORY` in the chain.
    pub mandatory: bool,
    /// A failure of this element lets the tuple pass (`FAIL OPEN`), instead of ending the call with INTERNAL.
    pub fail_open: bool,
}

/// The handlers of an element on `rpc`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Handlers {
    /// Once a call, when it reaches the element. The call's row is set to its defaults here, so an element with
    /// a `CALL` row always has this handler.
    pub open: Option<Function>,
    /// For each request message.
    pub request: Option<Function>,
    /// For each response message.
    pub response: Option<Function>,
    /// Once a call, for each element whose OPEN forwarded.
    pub close: Option<Function>,
    /// Once a node in each interval.
    pub every: Vec<(Interval, Function)>,
    /// For each row that left a table so, once.
    pub timeouts: Vec<(Departs, Function)>,
}

/// Which rows of a table a handler is told of when they have left it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Departs {
    /// The table.
    pub table: TableId,
    /// Why they left it.
    pub why: Departure,
}

/// An input column.
#[derive(Clone, Debug, PartialEq)]
pub struct Input {
    /// For people: `user`.
    pub name: String,
    /// Its type.
    pub ty: Type,
    /// It may be NULL.
    pub nullable: bool,
    /// Where it is.
    pub place: Place,
    /// Some handler changes it.
    pub written: bool,
}

/// Where an input column is.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Place {
    /// A field of the message, by its path from the top: `["user", "id"]`. The empty path is the message itself.
    Body(Vec<String>),
    /// The value of an entry of a map, by the map's path and the key: of several with the key, the last.
    Entry(Vec<String>, EntryKey),
    /// Whether a message in the message is there, by its path. It is nowhere on the wire: what sets it says so of a
    /// field of it that is set.
    Present(Vec<String>),
    /// A list of the message, as [`weft_core::list`] has it. Nothing sets it, and it is cleared where another member of
    /// the oneof around it is set.
    List(ListPlace),
    /// A header (in CLOSE: of the response headers), by its lower-case name.
    Header(String),
    /// A trailer, by its lower-case name; there in CLOSE.
    Trailer(String),
    /// Something that the engine knows.
    Meta(Meta),
    /// A key for the filter behind the chain's last element, by its number. It is never read.
    Key(u16),
    /// A field of a frame, or whether it has a layer: given by [`Frames::parser`].
    Frame(FieldRef),
    /// A layer of a frame, for a [`Reshape`]: given by [`Frames::parser`], and read by no element. Its slot has where
    /// its header begins, and how many bytes it has; in the upper half of that, where the layer ends.
    Layer(LayerRef),
}

/// A repeated field or a map, and what is read of its elements.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ListPlace {
    /// The field, by its path from the top.
    pub path: Vec<String>,
    /// The fields that are read of each element, by their paths within it; the empty path is the element itself. An
    /// entry of a map has the fields `key` and `value`.
    pub members: Vec<Vec<String>>,
    /// How many elements are taken. Of a list with more there is the number alone.
    pub elements_max: u64,
}

impl Place {
    /// Whether it is a part of the message of a call, and where: what displaces that takes it along.
    pub fn path(&self) -> Option<&[String]> {
        match self {
            Self::Body(path) | Self::Entry(path, _) | Self::Present(path) => Some(path),
            Self::List(list) => Some(&list.path),
            _ => None,
        }
    }
}

impl Place {
    /// Whether it is derived from the whole message of a call: another where a field of it is changed.
    pub fn is_derived(&self) -> bool {
        match self {
            Self::Body(path) => path.is_empty(),
            Self::Meta(meta) => *meta == Meta::Size,
            _ => false,
        }
    }
}

/// What the engine knows of a tuple, or a program reads of a frame without its parser.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Meta {
    /// `method`, TEXT: `/shop.Cart/Add`.
    Method,
    /// `peer`, TEXT: the client's address, `127.0.0.1:40112` or `unix`.
    Peer,
    /// `size`, SIZE: bytes of the message as it arrived; [`Op::Derived`] behind changes of its fields.
    Size,
    /// `index`, U64: which message of its stream and direction this is, from 0.
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
    /// `version`, U64: of the program that handles this tuple.
    Version,
    /// `port`, TEXT: where a frame arrived.
    Port,
    /// `packet_size`, U64: bytes of the longest packet that a frame stands for, without the header of the link.
    /// [`Meta::is_of_bytes`].
    PacketSize,
    /// `flow`, U64: a hash of 32 bits of its addresses, protocol and ports. [`Meta::is_of_bytes`].
    Flow,
    /// `is_icmp_error`, BOOL: whether a frame is an error of ICMP, about which nobody may be told.
    /// [`Meta::is_of_formats`].
    IsIcmpError,
    /// `is_intact`, BOOL: whether its checksums over what it carries come out right. [`Meta::is_of_formats`].
    IsIntact,
    /// `tunnel_depth`, U64: in how many tunnels its innermost packet is. [`Meta::is_of_formats`].
    TunnelDepth,
    /// `meta.tag`, U32: what elements say of a frame to those behind them, 0 until one does. [`Meta::user_meta_index`].
    Tag,
    /// `meta.label`, U32: likewise, the state of its flow.
    Label,
    /// `meta.path`, U32: likewise, the way that it is to take.
    Path,
}

/// What stands for formats of a program that says none.
static NO_FORMATS: Formats = Formats { protocols: Vec::new(), roots: Vec::new() };

/// The user metadata of a frame: elements set it for later elements.
pub const USER_META: [Meta; 3] = [Meta::Tag, Meta::Label, Meta::Path];

impl Meta {
    /// The index in [`USER_META`], if it is user metadata, which is not part of the frame.
    pub fn user_meta_index(self) -> Option<usize> {
        USER_META.iter().position(|meta| *meta == self)
    }

    /// Whether it is there in every frame, in no slot: a program reads it of the frame ([`Meta::of_bytes`]) where it
    /// asks for it, so that those that do not pay nothing.
    pub fn is_of_bytes(self) -> bool {
        matches!(self, Self::PacketSize | Self::Flow) || self.is_of_formats()
    }

    /// Whether that is for the wire formats of the program to say ([`Frames::formats`]).
    pub fn is_of_formats(self) -> bool {
        matches!(self, Self::IsIcmpError | Self::IsIntact | Self::TunnelDepth)
    }

    /// Whether the engine writes it to a slot for each tuple: the name of the port, which all frames of a batch have,
    /// is all of the region of such names ([`weft_core::abi::REGION_META`]), in every frame.
    pub fn has_slot(self) -> bool {
        !self.is_of_bytes() && self != Self::Port
    }

    /// What is read of a frame as a word, in a chain on such frames.
    pub fn of_bytes(self, frame: &[u8], offload: &Offload, of: &Frames) -> Option<u64> {
        match self {
            Self::PacketSize => Some(packet_size(frame, offload, of.is_ip) as u64),
            Self::Flow => Some(flow_of(frame, of.is_ip).flow.into()),
            _ => self.of_formats(frame, offload, of.formats.as_deref().unwrap_or(&NO_FORMATS)),
        }
    }

    /// What the wire formats say of a frame, as a word.
    pub fn of_formats(self, frame: &[u8], offload: &Offload, formats: &Formats) -> Option<u64> {
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
    /// Whose it is: the instance's name, or empty for a table shared by several (`CREATE TABLE`).
    pub owner: String,
    /// Keys, columns, limits. `TableSpec::columns` are the columns behind the keys.
    pub spec: TableSpec,
    /// How it is realised (DESIGN 2.3, "State").
    pub realisation: Realisation,
    /// Rows that the program text gives it: values of keys and columns, in order.
    pub rows: Vec<Vec<Value>>,
}

/// A way to match the rows of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatchDecl {
    /// The table, a replicated one.
    pub table: TableId,
    /// How its rows are asked, and in which order.
    pub spec: MatchSpec,
}

/// How a table keeps "one table per node, linearizable per key".
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Realisation {
    /// Filled by the controller, read without locks, replaced whole.
    Replicated,
    /// Locked by stripe of the key while an element works on it.
    Striped,
    /// Locked whole while an element works on it.
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
    /// Its word in [`weft_core::abi::Parts::scalars`] (or `merged`, if it is declared MERGE). Lowering numbers
    /// them from 0; whoever binds a program to existing state renumbers them by name before it compiles.
    pub word: u32,
    /// Its value at the start.
    pub start: Value,
    /// How parts are merged, if it is declared MERGE.
    pub merge: Option<Merge>,
}

/// How the parts of a variable are merged.
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
    /// Where its rows go.
    pub target: SinkTarget,
    /// How they are written there.
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

/// How the rows of a sink are written: one a line.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum SinkFormat {
    /// A JSON object.
    #[default]
    Json,
    /// For people: when, which sink, and `column=value` for each column.
    Text,
}

/// Where the rows of a sink go.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum SinkTarget {
    /// Standard output.
    Stdout,
    /// The end of a file.
    File(String),
    /// The admin endpoint's metrics: columns of type TEXT are labels, numbers are values.
    Metrics,
    /// A table that the controller fills: its columns have the names of the sink's.
    Table {
        /// The instance's name, empty for a table that belongs to none.
        owner: String,
        /// The table's name.
        table: String,
        /// Rows of their keys go, instead of being put there.
        deletes: bool,
    },
}

impl Place {
    /// Whether it is a message of a call as a whole, or derived from it: it changes with every field that is set.
    pub fn is_of_message(&self) -> bool {
        match self {
            Self::Body(path) => path.is_empty(),
            Self::Meta(meta) => *meta == Meta::Size,
            _ => false,
        }
    }
}

impl SinkDecl {
    /// The name of the table that its rows are sent to, empty if they go elsewhere.
    pub fn sent_to(&self) -> &str {
        self.target.table().map_or("", |(_, table)| table)
    }
}

impl SinkTarget {
    /// The table that rows are sent to: its instance, empty for a table that belongs to none, and its name.
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
    /// The type of the values that are given.
    pub ty: Type,
}

/// Which handlers a segment is made of, in which order.
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

/// A stage of a segment: one handler of one element.
#[derive(Clone, Copy, Debug)]
pub struct Part<'a> {
    /// The element's index in the chain.
    pub element: u16,
    /// Its handler.
    pub function: &'a Function,
    /// It is ON OPEN.
    pub opens: bool,
    /// The tuple is counted as seen by the element here: once, though several handlers may work on its call.
    pub counts: bool,
}

impl Element {
    /// What it does to a request.
    pub fn request_ops(&self) -> impl Iterator<Item = &Op> {
        let blocks = self.handlers.request.iter().flat_map(|function| &function.blocks);
        blocks.flat_map(|block| &block.insts).map(|inst| &inst.op)
    }

    /// The inputs of requests that it looks at.
    pub fn inputs_seen(&self) -> InputSet {
        let seen = |op: &Op| match op {
            Op::Input(id) | Op::Derived(id) | Op::InputPresent(id) => Some(*id),
            _ => None,
        };
        self.request_ops().filter_map(seen).collect()
    }

    /// The inputs of requests that it sets.
    pub fn inputs_set(&self) -> InputSet {
        let set = |op: &Op| match op {
            Op::SetInput(id, _) | Op::ClearInput(id) => Some(*id),
            _ => None,
        };
        self.request_ops().filter_map(set).collect()
    }

    /// Those that it looks at or sets.
    pub fn inputs_known(&self) -> InputSet {
        self.inputs_seen() | self.inputs_set()
    }
}

impl Handlers {
    /// Whether an element with these handlers counts tuples in segments for `event`: request messages if it works
    /// on them, else what it does work on.
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
    /// The parts of a segment in the order in which they run.
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

    /// The same elements in another order, by their indices. What belongs to an element has its name, so nothing else
    /// changes.
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

    /// The chain cut before the elements with these indices, which ascend: each part has its elements, and all of what
    /// they share.
    pub fn cut(&self, at: &[usize]) -> Vec<Self> {
        let ends = at.iter().copied().chain([self.elements.len()]);
        let mut from = 0;
        let part = |end| {
            let elements = self.elements[core::mem::replace(&mut from, end)..end].to_vec();
            Self { elements, ..self.clone() }
        };
        ends.map(part).collect()
    }

    /// The TIMEOUTs and EVICTs of all elements, each with its table.
    pub fn timeouts(&self) -> impl Iterator<Item = (Event, Departs)> + '_ {
        self.elements.iter().enumerate().flat_map(|(at, element)| {
            let timeouts = element.handlers.timeouts.iter().enumerate();
            timeouts.map(move |(nth, (departs, _))| (Event::Timeout(at as u16, nth as u16), *departs))
        })
    }

    /// Whether a change of structure has a frame go on in fragments.
    pub fn is_fragment(&self, reshape: u16) -> bool {
        self.reshapes.get(usize::from(reshape)).is_some_and(|decl| decl.what == Reshape::Fragment)
    }

    /// Whether those behind an element see another frame than it did: it changes the structure, or sets a field that
    /// one of them knows by another name.
    pub fn is_seen_anew_behind(&self, element: usize) -> bool {
        let Some((own, behind)) = self.elements.get(element..).and_then(|rest| rest.split_first()) else {
            return false;
        };
        let known = behind.iter().fold(InputSet::EMPTY, |all, element| all | element.inputs_known());
        own.handlers.request.as_ref().is_some_and(goes_on_reshaped)
            || self.request.overlapping(own.inputs_set()).intersects(known)
    }

    /// Whether the pass goes on where a handler of this element fails: it was declared `FAIL OPEN`, or the call is over
    /// and the others are still to hear of it.
    pub fn fails_open(&self, element: u16, event: Event) -> bool {
        event == Event::Close || self.elements.get(usize::from(element)).is_some_and(|e| e.fail_open)
    }

    /// The words of the call's row.
    pub fn call_words(&self) -> usize {
        self.call.last().map_or(0, |cell| cell.word as usize + cell_words(cell.ty))
    }

    fn in_order(&self, event: Event) -> Box<dyn Iterator<Item = (usize, &Element)> + '_> {
        let forward = self.elements.iter().enumerate();
        match event {
            Event::Response | Event::Close => Box::new(forward.rev()),
            _ => Box::new(forward),
        }
    }
}

impl Event {
    /// Whether the inputs are those of the request direction.
    pub fn is_request(self) -> bool {
        matches!(self, Self::Open | Self::OpenRequest | Self::Request | Self::Parse)
    }
}

/// Whether a frame goes on behind a handler after its structure has changed: not where the handler ends it then, as
/// with an answer that is a copy.
fn goes_on_reshaped(function: &Function) -> bool {
    let is_reshaped = |block: &Block| block.insts.iter().any(|inst| matches!(inst.op, Op::Reshape(..)));
    let mut left: Vec<usize> =
        (0..function.blocks.len()).filter(|at| is_reshaped(&function.blocks[*at])).collect();
    let mut seen = vec![false; function.blocks.len()];
    while let Some(at) = left.pop() {
        if core::mem::replace(&mut seen[at], true) {
            continue;
        }
        let end = &function.blocks[at].end;
        if end.goes_on() {
            return true;
        }
        left.extend(end.jumps().into_iter().map(|jump| jump.block.0 as usize));
    }
    false
}

/// The words that a cell of the call's row takes.
pub fn cell_words(ty: Type) -> usize {
    match ty.repr() {
        Repr::Bytes => 1 + (ty.bytes_max().unwrap_or(0) as usize).div_ceil(8),
        _ => 1,
    }
}

/// The status with which a failed element ends a call.
pub const FAILED: Status = Status::Internal;
