//! What the admin endpoint takes and gives, as JSON.
//!
//! | method and path | takes | gives |
//! | --- | --- | --- |
//! | `GET /healthz` | | `ok`, or status 503 and why the node does not serve |
//! | `GET /metrics` | | Prometheus text |
//! | `GET /v1/status` | token | [`Status`] |
//! | `GET /v1/program` | token | [`Bundle`] |
//! | `POST /v1/apply` | token, [`ApplyRequest`] | [`Applied`], or [`Refused`] with status 422 or 503 |
//! | `GET /v1/tables` | token | a list of [`TableTold`] |
//! | `POST /v1/query` | token, [`QueryRequest`] | a list of [`Answer`], or [`Refused`] with status 422 or 503 |
//! | `POST /v1/rows` | token, [`RowsRequest`] | [`Answer`], or [`Refused`] with status 422 or 503 |
//! | `POST /v1/recordings` | token, [`RecordRequest`] | nothing, or [`Refused`] with status 422 or 503 |
//! | `GET /v1/recordings` | token | a list of [`Recording`] |
//! | `POST /v1/recordings/take` | token, [`TakeRequest`] | the file of a recording as text, or 404; it is no more |
//!
//! The token is sent as `Authorization: Bearer TOKEN`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Bytes of a request body that the admin endpoint takes.
pub const REQUEST_BYTES_MAX: usize = 64 << 20;

/// The files of a program: all that a check reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bundle {
    /// The file that the program begins with, a key of `files`.
    pub root: String,
    /// Text by name.
    pub files: BTreeMap<String, String>,
    /// What is no text, by name: descriptor sets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub binary: BTreeMap<String, Binary>,
    /// Folders in which `.proto` files are looked for, beside those that the program names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proto_paths: Vec<String>,
}

/// Bytes of any kind; in JSON they are base64 (RFC 4648, section 4).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Binary(pub Vec<u8>);

const BASE64: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

impl From<Binary> for String {
    fn from(Binary(bytes): Binary) -> Self {
        let mut text = Self::with_capacity(bytes.len().div_ceil(3) * 4);
        for part in bytes.chunks(3) {
            let bits = part.iter().zip([16, 8, 0]).fold(0, |bits, (&byte, at)| bits | u32::from(byte) << at);
            let digits = [18, 12, 6, 0].map(|at| char::from(BASE64[(bits >> at & 63) as usize]));
            text.extend(&digits[..=part.len()]);
            text.extend(&['=', '='][..3 - part.len()]);
        }
        text
    }
}

impl TryFrom<String> for Binary {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        const WHY: &str = "it is no base64";
        let digits = text.as_bytes();
        let n_padding = digits.iter().rev().take_while(|&&digit| digit == b'=').count();
        if !digits.len().is_multiple_of(4) || n_padding > 2 {
            return Err(WHY);
        }
        let mut values = [None; 256];
        for (value, &digit) in (0..).zip(BASE64) {
            values[usize::from(digit)] = Some(value);
        }
        let mut bytes = Vec::with_capacity(digits.len() / 4 * 3);
        for part in digits[..digits.len() - n_padding].chunks(4) {
            let mut bits = 0_u32;
            for (&digit, at) in part.iter().zip([18, 12, 6, 0]) {
                bits |= values[usize::from(digit)].map(|value: u32| value << at).ok_or(WHY)?;
            }
            bytes.extend(&bits.to_be_bytes()[1..part.len()]);
        }
        Ok(Self(bytes))
    }
}

/// Run this program from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplyRequest {
    /// The program.
    pub program: Bundle,
    /// Check, compile and bind it as for a change, and change nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// Who asks, as they call themselves; for the node's log.
    #[serde(default)]
    pub by: String,
}

/// The program runs, or would run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Applied {
    /// Its version.
    pub version: u64,
    /// Nothing was changed: it was a dry run.
    #[serde(default)]
    pub dry_run: bool,
    /// What the program changes of the one before, in order of name.
    #[serde(default)]
    pub changes: Vec<Change>,
    /// Warnings, as data: a list like that of [`Refused`].
    #[serde(default)]
    pub diagnostics: serde_json::Value,
    /// State of the program before that this one has no name for, in order of name.
    #[serde(default)]
    pub dropped: Vec<Dropped>,
    /// Chains of which another order runs than is written.
    #[serde(default)]
    pub planned: Vec<Planned>,
    /// What was found for the names of endpoints, which were looked up anew.
    #[serde(default)]
    pub names: Vec<NameFound>,
    /// From the request to the last worker's acknowledgement, in milliseconds.
    pub total_ms: f64,
    /// Of that, checking the program.
    pub check_ms: f64,
    /// Of that, compiling it to machine code.
    pub compile_ms: f64,
    /// The longest time that one worker gave to the change alone, in microseconds.
    pub pause_us: f64,
    /// Calls that chains of the versions before still carry, right after the change. They end there, but for streams,
    /// which move at their next message where the elements are the same. 0 for a dry run.
    pub calls_in_flight: u64,
}

/// A thing of the network that a program changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Its kind and name: `cluster cart`, `element acl`, `table shop.acl.ac_tab`.
    pub what: String,
    /// How it changes.
    pub kind: ChangeKind,
}

/// State that is lost by a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// Its kind and name: `table shop.limit.b`, `var shop.limit.n`.
    pub what: String,
    /// The rows of a table; None for a variable.
    pub rows: Option<u64>,
}

/// A chain that runs in another order than is written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// Its name.
    pub chain: String,
    /// Its elements as written.
    pub written: Vec<String>,
    /// In the order in which requests pass them.
    pub order: Vec<String>,
    /// Nanoseconds that a call is expected to take in its elements in the order as written.
    pub written_ns: f64,
    /// The same, in the order that runs.
    pub planned_ns: f64,
    /// Something of these figures was measured on the version before; else all are estimates.
    pub is_measured: bool,
}

/// How a thing changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// It was not there.
    New,
    /// It was there, and meant something else.
    Changed,
    /// It is no longer there.
    Gone,
}

/// The program was not taken; what ran before still runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Refused {
    /// What is wrong as a person reads it.
    pub text: String,
    /// What is wrong with the program as data: a list, empty if nothing is.
    pub diagnostics: serde_json::Value,
    /// The version that still runs; 0 if no node could be asked.
    pub version: u64,
    /// What has to change before the program is taken.
    #[serde(default)]
    pub at_fault: AtFault,
    /// Rows that are in all the same: those in front of one that found no room in a table that handlers fill.
    #[serde(default)]
    pub rows_in: u64,
}

/// Whose fault it is that a program was not taken.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AtFault {
    /// The program's. Status 422.
    #[default]
    Program,
    /// The machine's, on which an address is taken, a file cannot be opened, a name is not known. Status 503.
    Environment,
}

/// Ask tables, or change their rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryRequest {
    /// Statements, each of which is carried out wholly or not at all.
    pub text: String,
}

/// Seconds that a recording of a link may take.
pub const RECORD_SECONDS_MAX: u64 = 600;
/// Links that are recorded at once, at most.
pub const RECORDINGS_MAX: usize = 4;
/// Seconds after its end that a recording is kept for whoever asks for it.
pub const RECORDING_KEPT_SECONDS: u64 = 30;

/// Record what the queue of a link is asked from now on; of one of calls, those of all workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordRequest {
    /// Its name.
    pub link: String,
    /// For so long, [`RECORD_SECONDS_MAX`] at most.
    pub seconds: f64,
    /// Packets, or calls, at most.
    pub packets: u64,
    /// Bytes of the recording at most.
    pub bytes: u64,
}

/// How far a recording of a link is.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// The link.
    pub link: String,
    /// It is one of calls.
    #[serde(default)]
    pub of_calls: bool,
    /// Packets, or calls, that came so far and are in it.
    pub packets: u64,
    /// Bytes so far.
    pub bytes: u64,
    /// Packets, or calls, that came in its time and are not in it.
    pub missed: u64,
    /// Why there will be no more of it: `time`, `full`, or `replaced`: the link has another queue.
    pub ended: Option<String>,
}

/// Give a recording, and end it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TakeRequest {
    /// The link.
    pub link: String,
}

/// Put rows into a table, all or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowsRequest {
    /// `chain.instance.table`, or the name of a shared table.
    pub table: String,
    /// The columns that the rows give; if none is named, all in the order of their declaration.
    #[serde(default)]
    pub columns: Vec<String>,
    /// The rows: values as in a list, without quotes; an empty one is NULL where the column may be that.
    pub rows: Vec<Vec<String>>,
    /// Rows that are there already are replaced; else they are a fault.
    #[serde(default)]
    pub or_replace: bool,
    /// Rows that were sent before, by which faults are counted.
    #[serde(default)]
    pub first: u64,
}

/// What a statement gives.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// The columns of the rows; none for a statement that changes rows.
    #[serde(default)]
    pub columns: Vec<String>,
    /// The rows.
    #[serde(default)]
    pub rows: Vec<Vec<serde_json::Value>>,
    /// There are more rows than an answer has.
    #[serde(default)]
    pub is_cut: bool,
    /// Rows that are new.
    #[serde(default)]
    pub inserted: u64,
    /// Rows that have other values.
    #[serde(default)]
    pub updated: u64,
    /// Rows that are gone.
    #[serde(default)]
    pub deleted: u64,
    /// From the beginning until all workers see it, in milliseconds.
    pub visible_ms: f64,
    /// What of the statements is allowed and most likely not meant, for a person; with the first answer.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub warnings: String,
}

/// A table of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TableTold {
    /// `chain.instance.table`, or the name of a shared table.
    pub name: String,
    /// `controller`, `cluster`, `ports` or `handlers`; of a system table `node`.
    pub filled_by: String,
    /// Rows in it, those that have expired and are not swept yet included.
    pub rows: u64,
    /// The most rows that it has.
    pub rows_max: u64,
    /// Bytes that it holds now.
    pub bytes: u64,
    /// Rows that it evicted and that its ON EVICT was not told of, for want of places in which to wait.
    #[serde(default)]
    pub evicted_untold: u64,
    /// Rows of the controller that the TTL took out.
    #[serde(default)]
    pub expired: u64,
    /// What is matched over it is compiled to, one text for each match.
    #[serde(default)]
    pub matched: Vec<String>,
}

/// What a node does.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The version that new calls enter under.
    pub version: u64,
    /// Seconds since the node began.
    pub uptime_s: f64,
    /// Worker threads.
    pub workers: usize,
    /// Where it listens.
    pub listeners: Vec<Listener>,
    /// Where calls go.
    #[serde(default)]
    pub clusters: Vec<Cluster>,
    /// Calls since the node began.
    pub calls: Calls,
    /// Chains under each version that still has calls.
    pub chains: Vec<Chain>,
    /// The filters of the chains that new calls enter.
    #[serde(default)]
    pub filters: Vec<Filter>,
    /// Upstream endpoints.
    pub endpoints: Vec<Endpoint>,
    /// Where calls to clusters wait.
    #[serde(default)]
    pub links: Vec<Link>,
    /// Ports and what runs on them; none where the program has no ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<Packets>,
    /// Refusals by reason.
    pub refusals: BTreeMap<String, u64>,
    /// Passes of a call through a chain that took longer than 10 ms, by chain: meanwhile all other calls of the worker
    /// wait.
    #[serde(default)]
    pub slow_passes: BTreeMap<String, u64>,
    /// Rows of sinks that no file or stream took.
    #[serde(default)]
    pub rows_lost: u64,
    /// Rows of sinks `TO TABLE` that a table did not take, by its name: it is full, a value does not fit, or a
    /// CHECK does not hold.
    #[serde(default)]
    pub rows_refused: BTreeMap<String, u64>,
    /// Resident memory in bytes.
    pub memory_bytes: u64,
    /// Descriptors that the process may have (`RLIMIT_NOFILE`); None if there is no limit.
    #[serde(default)]
    pub descriptors_max: Option<u64>,
    /// How many of them are not for the connections of calls.
    #[serde(default)]
    pub descriptors_reserved: u64,
    /// Capabilities that the node still holds, as capabilities(7) names them, without `CAP_`.
    #[serde(default)]
    pub capabilities: Vec<String>,
}

/// What carries frames.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Packets {
    /// The ports, in the order of the program.
    pub ports: Vec<Port>,
    /// Ports that stand together.
    #[serde(default)]
    pub groups: Vec<Group>,
    /// The chains on them.
    pub chains: Vec<PacketChain>,
    /// Packets that went no further for another reason than an element or a wire format, by reason.
    pub lost: BTreeMap<String, u64>,
    /// Copies that left.
    pub copies: u64,
    /// Where packets wait.
    #[serde(default)]
    pub links: Vec<Link>,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// What carries its frames: `packet eth0`.
    pub device: String,
    /// Packets that came in.
    pub received: u64,
    /// Their bytes.
    pub received_bytes: u64,
    /// Packets that left.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
    /// Packets that the port dropped, by reason: `overrun` (they came faster than they were taken, or are longer than
    /// the buffers of an XDP port hold), `refused_in`,
    /// `refused_out` (the device cannot carry them, or is down), `port_full` (too many waited), `device_gone` (it
    /// is gone or down, and a link says that they go).
    pub dropped: BTreeMap<String, u64>,
    /// No packet will come from it any more: a capture is at its end, or it is only written.
    #[serde(default)]
    pub is_ended: bool,
    /// Why a capture ended before its end; or that the device is gone or down, and what is done meanwhile.
    #[serde(default)]
    pub broken: Option<String>,
}

/// Ports that stand together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Its name.
    pub name: String,
    /// Which of them takes a packet: `all`, `select by flow()`, `failover`.
    pub choice: String,
    /// The ports, in the order of the program.
    pub members: Vec<GroupMember>,
}

/// A port of a group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupMember {
    /// The port.
    pub port: String,
    /// Its share beside those of others.
    pub weight: u16,
    /// Its link is up.
    pub is_up: bool,
    /// Packets that the group sent to it.
    pub sent: u64,
    /// Their bytes.
    pub sent_bytes: u64,
}

/// Where the packets of a port, or the calls to a cluster, wait.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// Its name.
    pub name: String,
    /// Its port, or its cluster.
    pub port: String,
    /// `in` or `out`; `calls` for a cluster.
    pub direction: String,
    /// The queue that it runs.
    pub queue: String,
    /// Bits a second, or calls a second for a cluster; None is as fast as the port takes them.
    pub rate: Option<u64>,
    /// Calls to the cluster that are under way at most.
    #[serde(default)]
    pub concurrency: Option<u32>,
    /// Calls under way.
    #[serde(default)]
    pub in_flight: u64,
    /// Calls that were over before their turn: their client has left, or their deadline has passed.
    #[serde(default)]
    pub left: u64,
    /// Packets that came.
    pub arrived: u64,
    /// Packets that left.
    pub sent: u64,
    /// Packets that wait.
    pub queued: u64,
    /// Their bytes.
    pub queued_bytes: u64,
    /// Packets that got the mark of congestion.
    pub marked: u64,
    /// Packets that were dropped, by reason: `enqueue`, `dequeue` (a handler said so), `overflow` (the limit).
    pub dropped: BTreeMap<String, u64>,
    /// Packets that a new queue refused when it took over from another; they are among those dropped.
    pub swap_overflow: u64,
    /// How long packets waited in the queue at hand, in microseconds: no longer than this half of them, nine in ten,
    /// 99 in 100.
    pub waited_us: [f64; 3],
    /// Drops and marks by the line that said so, of all queues that the link had.
    pub lines: Vec<QueueLine>,
    /// Partitions that hold packets or are in an order, and those that did, the first 64 of each level.
    pub partitions: Vec<QueuePartition>,
}

/// What a line of a queue decided.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueLine {
    /// The queue that the line is in.
    pub queue: String,
    /// The version of the program that had the queue in these words first.
    #[serde(default)]
    pub version: u64,
    /// The line.
    pub line: u32,
    /// `drop` or `mark`.
    pub verdict: String,
    /// How often.
    pub packets: u64,
}

/// A partition of a queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueuePartition {
    /// The queue that it is in.
    pub queue: String,
    /// Its level: 0 is the first of a queue that is made of others.
    #[serde(default)]
    pub level: u8,
    /// Which node of it, and which partition of that.
    pub place: [u32; 2],
    /// Packets in it.
    pub packets: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Its rank.
    pub rank: i64,
    /// It waits.
    pub is_held: bool,
    /// Packets that were sent from it.
    #[serde(default)]
    pub sent: u64,
    /// Packets of it that were dropped, on this level and those below.
    #[serde(default)]
    pub dropped: u64,
    /// Packets of it that got the mark of congestion, likewise.
    #[serde(default)]
    pub marked: u64,
    /// How long those waited that were sent, in microseconds: no longer than this half of them, nine in ten, 99 in 100.
    #[serde(default)]
    pub waited_us: [f64; 3],
    /// Its drops and marks by the line of its queue that said so.
    #[serde(default)]
    pub lines: Vec<PartitionLine>,
}

/// What a line of a queue decided on packets of a partition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartitionLine {
    /// The version of the program that had the queue in these words first.
    #[serde(default)]
    pub version: u64,
    /// The line.
    pub line: u32,
    /// `drop` or `mark`.
    pub verdict: String,
    /// How often.
    pub packets: u64,
}

/// A chain on ports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PacketChain {
    /// Its name.
    pub name: String,
    /// The version that runs.
    pub version: u64,
    /// Packets that took it, the malformed ones included.
    pub frames: u64,
    /// Its elements, in order.
    pub elements: Vec<Element>,
    /// How elements ended packets.
    pub ends: Vec<PacketEnd>,
    /// Packets that broke a rule of a wire format.
    pub malformed: Vec<Malformed>,
}

/// How an element ended packets.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PacketEnd {
    /// The instance.
    pub element: String,
    /// The file of its element.
    #[serde(default)]
    pub file: String,
    /// The line in it.
    pub line: u32,
    /// How: `drop`, `abort NOT_FOUND`.
    pub how: String,
    /// How many.
    pub packets: u64,
}

/// Packets that broke a rule of a wire format.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Malformed {
    /// The protocol.
    pub protocol: String,
    /// The file of its definition.
    #[serde(default)]
    pub file: String,
    /// The line of the rule.
    pub line: u32,
    /// The rule.
    pub what: String,
    /// How many.
    pub packets: u64,
}

/// Counts and times of calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    /// Begun.
    pub begun: u64,
    /// Under way.
    pub open: u64,
    /// Ended, by status name; those that none ended with are left out.
    pub ended: BTreeMap<String, u64>,
    /// Median time from begin to end on this node, in microseconds.
    pub p50_us: f64,
    /// The same, 99th percentile.
    pub p99_us: f64,
}

/// A chain under a version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    /// The chain's name.
    pub name: String,
    /// The version.
    pub version: u64,
    /// New calls enter it.
    pub is_current: bool,
    /// Calls under way in it.
    pub calls_open: u64,
    /// Its elements in the order of requests.
    pub elements: Vec<Element>,
}

/// What a filter did, and where it stands.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Filter {
    /// Its chain.
    pub chain: String,
    /// The instance's name.
    pub name: String,
    /// What it did: `calls`, `waited`, `refused`, `tries`, `retries`, `hedges`, `over_budget`, `timeouts`, `repeated`,
    /// `detached`, `opened`, `ejected`.
    pub counts: BTreeMap<String, u64>,
    /// Calls that wait at it.
    pub waiting: u64,
    /// Calls that CIRCUIT or CONGESTION counts as under way.
    pub in_flight: u64,
    /// The limit of CONGESTION; 0 without one.
    pub limit: f64,
    /// CIRCUIT refuses calls.
    pub is_open: bool,
}

/// What an element instance did.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Element {
    /// The instance's name.
    pub name: String,
    /// Request messages that reached it; for one without ON REQUEST, what it works on.
    pub seen: u64,
    /// Tuples that it ended with DROP.
    pub dropped: u64,
    /// Tuples that it ended with ABORT.
    pub aborted: u64,
    /// Tuples that it answered or redirected.
    pub diverted: u64,
    /// Tuples on which it failed.
    pub failed: u64,
    /// Nanoseconds for one tuple, from sampled passes; None before the first.
    pub ns_per_tuple: Option<f64>,
    /// How many passes were sampled.
    #[serde(default)]
    pub sampled: u64,
}

/// An upstream endpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The cluster.
    pub cluster: String,
    /// The address.
    pub address: String,
    /// Calls under way.
    pub active: u64,
    /// Streams that the connections have, those of calls under way included.
    #[serde(default)]
    pub places: u64,
    /// Connections that are up.
    #[serde(default)]
    pub connections: u64,
    /// Calls that wait for a stream.
    #[serde(default)]
    pub waiting: u64,
    /// Calls sent.
    pub calls: u64,
    /// Connection attempts that failed.
    pub connect_failures: u64,
    /// The addresses of an endpoint that is a name, in the order in which they are tried.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Why it has no connection: its name has no address, or the last attempt failed.
    #[serde(default)]
    pub down: Option<String>,
}

/// A listener.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Listener {
    /// Its name.
    pub name: String,
    /// Where it listens.
    pub address: String,
    /// All its options.
    #[serde(default)]
    pub options: Vec<Opt>,
}

/// A cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// Its name.
    pub name: String,
    /// All its options.
    pub options: Vec<Opt>,
}

/// An option of a listener or a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opt {
    /// Its name.
    pub name: String,
    /// Its value, as a program writes it: `4 MiB`, `1 s`, `1000`; `none` for an option that does nothing.
    pub value: String,
    /// It is what holds if a program does not set it.
    pub is_default: bool,
}

/// What was found for the name of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NameFound {
    /// The name, with the port.
    pub name: String,
    /// Its addresses, in the order in which they are tried.
    pub addresses: Vec<String>,
    /// Why the last look-up failed; earlier addresses stay.
    pub error: Option<String>,
    /// The addresses are not those from before.
    pub is_changed: bool,
}
