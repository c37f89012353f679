//! Requests and responses of the admin endpoint, as JSON.
//!
//! | method and path | takes | gives |
//! | --- | --- | --- |
//! | `GET /healthz` | | `ok`, or status 503 and why the node does not serve |
//! | `GET /metrics` | | Prometheus text |
//! | `GET /v1/status` | token | [`Status`] |
//! | `GET /v1/program` | token | [`Bundle`] |
//! | `POST /v1/apply` | token, [`ApplyRequest`] | [`Applied`], or [`Refused`] with status 422 or 503 |
//! | `GET /v1/tables` | token | a list of [`TableStatus`] |
//! | `POST /v1/query` | token, [`QueryRequest`] | a list of [`QueryResult`], or [`Refused`] with status 422 or 503 |
//! | `POST /v1/rows` | token, [`RowsRequest`] | [`QueryResult`], or [`Refused`] with status 422 or 503 |
//! | `POST /v1/recordings` | token, [`RecordRequest`] | nothing, or [`Refused`] with status 422 or 503 |
//! | `GET /v1/recordings` | token | a list of [`Recording`] |
//! | `POST /v1/recordings/take` | token, [`EndRecordingRequest`] | the recording's file as text, or 404; deletes it |
//!
//! The token is sent as `Authorization: Bearer TOKEN`.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Maximum size of a request body, in bytes.
pub const REQUEST_BYTES_MAX: usize = 64 << 20;

/// The files of a program: everything that a check reads.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bundle {
    /// The main file, a key of `files`.
    pub root: String,
    /// Text files by name.
    pub files: BTreeMap<String, String>,
    /// Binary files by name: descriptor sets.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub binary: BTreeMap<String, Binary>,
    /// More search folders for `.proto` files than the program names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub proto_paths: Vec<String>,
}

/// Arbitrary bytes; in JSON they are base64 (RFC 4648, section 4).
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

    /// Decodes padded base64 (RFC 4648 section 4).
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

/// Replaces the running program.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ApplyRequest {
    /// The program.
    pub program: Bundle,
    /// Check, compile and bind the program, but change nothing.
    #[serde(default)]
    pub dry_run: bool,
    /// The name that the client gives itself, for the node's log.
    #[serde(default)]
    pub by: String,
}

/// The response to an [`ApplyRequest`]: the program runs, or would run.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Applied {
    /// The program's version.
    pub version: u64,
    /// This was a dry run: nothing changed.
    #[serde(default)]
    pub dry_run: bool,
    /// The differences from the previous program, ordered by name.
    #[serde(default)]
    pub changes: Vec<Change>,
    /// Warnings as data, in the form of [`Refused::diagnostics`].
    #[serde(default)]
    pub diagnostics: serde_json::Value,
    /// State of the previous program that the new one does not have, ordered by name.
    #[serde(default)]
    pub dropped: Vec<Dropped>,
    /// Chains that run in another order than they are written.
    #[serde(default)]
    pub planned: Vec<Planned>,
    /// Results of the name lookups for endpoints.
    #[serde(default)]
    pub names: Vec<ResolvedName>,
    /// Time from the request to the last worker's acknowledgement, in milliseconds.
    pub total_ms: f64,
    /// The part of it for checking the program.
    pub check_ms: f64,
    /// The part of it for compiling the program to machine code.
    pub compile_ms: f64,
    /// The longest time that a worker spent on the change, in microseconds.
    pub pause_us: f64,
    /// Open calls on chains of earlier versions, right after the change. Calls end on their version; streams move at
    /// their next message if the elements are the same. 0 for a dry run.
    pub calls_in_flight: u64,
}

/// A difference between two programs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Change {
    /// Kind and name of what changes: `cluster cart`, `element acl`, `table shop.acl.ac_tab`.
    pub what: String,
    /// The kind of change.
    pub kind: ChangeKind,
}

/// State that a change discards.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dropped {
    /// Kind and name: `table shop.limit.b`, `var shop.limit.n`.
    pub what: String,
    /// Number of rows in a table; `None` for a variable.
    pub rows: Option<u64>,
}

/// A chain that runs in another order than it is written.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Planned {
    /// The chain's name.
    pub chain: String,
    /// The elements in the order of the program.
    pub written: Vec<String>,
    /// The elements in the order in which requests pass them.
    pub order: Vec<String>,
    /// Estimated cost of a call in the written order, in nanoseconds.
    pub written_ns: f64,
    /// Estimated cost of a call in the planned order, in nanoseconds.
    pub planned_ns: f64,
    /// Some of these figures were measured on the previous version; otherwise all are estimates.
    pub is_measured: bool,
}

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChangeKind {
    /// It is new.
    New,
    /// It has another meaning.
    Changed,
    /// It is removed.
    Gone,
}

/// The program was refused; the previous one keeps running.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Refused {
    /// The diagnostics as text.
    pub text: String,
    /// The diagnostics as data: a list; empty if the program is correct.
    pub diagnostics: serde_json::Value,
    /// The version that keeps running; 0 without a node.
    pub version: u64,
    /// What has to change before the node accepts the program.
    #[serde(default)]
    pub at_fault: AtFault,
    /// Rows that were inserted despite the error: those in front of a row for which a handler-filled table had no room.
    #[serde(default)]
    pub rows_in: u64,
}

/// The cause of a refusal.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum AtFault {
    /// The program. Status 422.
    #[default]
    Program,
    /// The machine: an address is in use, a file cannot be opened, a name is unknown. Status 503.
    Environment,
}

/// Queries tables, or changes their rows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct QueryRequest {
    /// Statements. Each one is executed completely or not at all.
    pub text: String,
}

/// Maximum duration of a link recording, in seconds.
pub const RECORD_SECONDS_MAX: u64 = 600;
/// Maximum number of concurrent recordings.
pub const RECORDINGS_MAX: usize = 4;
/// How long a finished recording is kept, in seconds.
pub const RECORDING_RETENTION_SECONDS: u64 = 30;

/// Records the operations on a link's queue from now on; for a call link, those of all workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RecordRequest {
    /// The link's name.
    pub link: String,
    /// Duration in seconds, at most [`RECORD_SECONDS_MAX`].
    pub seconds: f64,
    /// Maximum number of packets or calls.
    pub packets: u64,
    /// Maximum size of the recording, in bytes.
    pub bytes: u64,
}

/// The progress of a link recording.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Recording {
    /// The link.
    pub link: String,
    /// It records calls.
    #[serde(default)]
    pub of_calls: bool,
    /// Packets or calls recorded so far.
    pub packets: u64,
    /// Size so far, in bytes.
    pub bytes: u64,
    /// Packets or calls that arrived during the recording and are not in it.
    pub missed: u64,
    /// Why the recording ended: `time`, `full`, or `replaced` (the link has a new queue).
    pub ended: Option<String>,
}

/// Ends a recording and returns it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndRecordingRequest {
    /// The link.
    pub link: String,
}

/// Inserts rows into a table, all or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RowsRequest {
    /// `chain.instance.table`, or the name of a shared table.
    pub table: String,
    /// The columns of the rows; if empty, all columns in the order of their declaration.
    #[serde(default)]
    pub columns: Vec<String>,
    /// The rows: values without quotes, as in CSV. An empty value is NULL if the column is nullable.
    pub rows: Vec<Vec<String>>,
    /// Replace existing rows; otherwise an existing row is an error.
    #[serde(default)]
    pub or_replace: bool,
    /// Number of rows in earlier requests, an offset for the row numbers in errors.
    #[serde(default)]
    pub first: u64,
}

/// The result of a statement.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueryResult {
    /// The columns of the rows; none for a statement that changes rows.
    #[serde(default)]
    pub columns: Vec<String>,
    /// The rows.
    #[serde(default)]
    pub rows: Vec<Vec<serde_json::Value>>,
    /// The result was truncated.
    #[serde(default)]
    pub is_cut: bool,
    /// Number of inserted rows.
    #[serde(default)]
    pub inserted: u64,
    /// Number of updated rows.
    #[serde(default)]
    pub updated: u64,
    /// Number of deleted rows.
    #[serde(default)]
    pub deleted: u64,
    /// Time until all workers see the change, in milliseconds.
    pub visible_ms: f64,
    /// Warnings about the statements as text, with the first result only.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub warnings: String,
}

/// The status of a table.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TableStatus {
    /// `chain.instance.table`, or the name of a shared table.
    pub name: String,
    /// `controller`, `cluster`, `ports` or `handlers`; `node` for a system table.
    pub filled_by: String,
    /// Number of rows, including expired rows that are not swept yet.
    pub rows: u64,
    /// Maximum number of rows.
    pub rows_max: u64,
    /// Current size in bytes.
    pub bytes: u64,
    /// Evicted rows for which ON EVICT did not run, because no slot was free to keep the row for it.
    #[serde(default)]
    pub evicted_untold: u64,
    /// Controller rows that the TTL removed.
    #[serde(default)]
    pub expired: u64,
    /// How each match over the table is compiled, as one text per match.
    #[serde(default)]
    pub matched: Vec<String>,
}

/// The status of a node.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Status {
    /// The version of new calls.
    pub version: u64,
    /// Seconds since the node started.
    pub uptime_s: f64,
    /// Number of worker threads.
    pub workers: usize,
    /// The listeners.
    pub listeners: Vec<Listener>,
    /// The clusters.
    #[serde(default)]
    pub clusters: Vec<Cluster>,
    /// Calls since the node started.
    pub calls: Calls,
    /// The chains of each version that still has calls.
    pub chains: Vec<Chain>,
    /// The filters on the chains of new calls.
    #[serde(default)]
    pub filters: Vec<Filter>,
    /// Upstream endpoints.
    pub endpoints: Vec<Endpoint>,
    /// The call links.
    #[serde(default)]
    pub links: Vec<Link>,
    /// Ports and packet chains; `None` if the program has no ports.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub packets: Option<Packets>,
    /// Refusals by reason.
    pub refusals: BTreeMap<String, u64>,
    /// Passes of a call through a chain that took longer than 10 ms, by chain. Such a pass blocks all other calls of
    /// the worker.
    #[serde(default)]
    pub slow_passes: BTreeMap<String, u64>,
    /// Sink rows that no file or stream accepted.
    #[serde(default)]
    pub rows_lost: u64,
    /// Rows of `TO TABLE` sinks that the table refused, by table name: it is full, a value does not fit, or a CHECK
    /// does not hold.
    #[serde(default)]
    pub rows_refused: BTreeMap<String, u64>,
    /// Resident memory in bytes.
    pub memory_bytes: u64,
    /// Limit of file descriptors (`RLIMIT_NOFILE`); `None` if unlimited.
    #[serde(default)]
    pub descriptors_max: Option<u64>,
    /// File descriptors that are reserved for other uses than call connections.
    #[serde(default)]
    pub descriptors_reserved: u64,
    /// The capabilities that the node still holds, named as in capabilities(7), without `CAP_`.
    #[serde(default)]
    pub capabilities: Vec<String>,
}

/// The status of packet processing.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Packets {
    /// The ports, in the order of the program.
    pub ports: Vec<Port>,
    /// Groups of ports.
    #[serde(default)]
    pub groups: Vec<Group>,
    /// The chains on ports.
    pub chains: Vec<PacketChain>,
    /// Packets dropped for other reasons than an element or a malformed header, by reason.
    pub lost: BTreeMap<String, u64>,
    /// Copies that were sent.
    pub copies: u64,
    /// The packet links.
    #[serde(default)]
    pub links: Vec<Link>,
}

/// A port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Port {
    /// The port's name.
    pub name: String,
    /// The device: `packet eth0`.
    pub device: String,
    /// Received packets.
    pub received: u64,
    /// Received bytes.
    pub received_bytes: u64,
    /// Sent packets.
    pub sent: u64,
    /// Sent bytes.
    pub sent_bytes: u64,
    /// Packets that the port dropped, by reason. `overrun`: they arrived faster than the node read them, or exceed the
    /// buffers of an XDP port. `refused_in`. `refused_out`: the device cannot send them, or is down. `port_full`: too
    /// many were queued. `device_gone`: it is gone or down, with ON FAILURE DROP of a link.
    pub dropped: BTreeMap<String, u64>,
    /// The port delivers no more packets: its capture has ended, or it is write-only.
    #[serde(default)]
    pub is_ended: bool,
    /// Why a capture ended early; or that the device is gone or down, and what the node does meanwhile.
    #[serde(default)]
    pub broken: Option<String>,
}

/// A group of ports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// The group's name.
    pub name: String,
    /// How the group selects a member for a packet: `all`, `select by flow()`, `failover`.
    pub choice: String,
    /// The ports, in the order of the program.
    pub members: Vec<GroupMember>,
}

/// A member of a port group.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct GroupMember {
    /// The port's name.
    pub port: String,
    /// Its weight relative to the other members.
    pub weight: u16,
    /// Whether its link is up.
    pub is_up: bool,
    /// Packets that the group sent to it.
    pub sent: u64,
    /// Bytes that the group sent to it.
    pub sent_bytes: u64,
}

/// The queue of a port's packets, or of a cluster's calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Link {
    /// The link's name.
    pub name: String,
    /// The port or the cluster.
    pub port: String,
    /// `in` or `out`; `calls` for a cluster.
    pub direction: String,
    /// The queue's name.
    pub queue: String,
    /// Bits per second, or calls per second for a cluster; `None`: as fast as the port sends.
    pub rate: Option<u64>,
    /// Maximum number of concurrent calls to the cluster.
    #[serde(default)]
    pub concurrency: Option<u32>,
    /// Calls in flight.
    #[serde(default)]
    pub in_flight: u64,
    /// Calls that ended while they were queued: the client cancelled, or the deadline passed.
    #[serde(default)]
    pub left: u64,
    /// Packets that arrived.
    pub arrived: u64,
    /// Packets that were sent.
    pub sent: u64,
    /// Packets in the queue.
    pub queued: u64,
    /// Bytes in the queue.
    pub queued_bytes: u64,
    /// Packets that were ECN-marked.
    pub marked: u64,
    /// Dropped packets, by reason: `enqueue` and `dequeue` (a handler's DROP), `overflow` (the limit).
    pub dropped: BTreeMap<String, u64>,
    /// Packets that a new queue refused when it replaced another one; included in `dropped`.
    pub swap_overflow: u64,
    /// Sojourn times in the current queue, in microseconds: median, 90th and 99th percentile.
    pub waited_us: [f64; 3],
    /// Drops and marks by source line, for all queues that the link has had.
    pub lines: Vec<QueueVerdict>,
    /// Partitions that hold packets or are in the order, now or earlier; the first 64 of each level.
    pub partitions: Vec<QueuePartition>,
}

/// Drops or marks by one source line of a queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueueVerdict {
    /// The queue's name.
    pub queue: String,
    /// The first version of the program with this text of the queue.
    #[serde(default)]
    pub version: u64,
    /// The source line.
    pub line: u32,
    /// `drop` or `mark`.
    pub verdict: String,
    /// Number of packets.
    pub packets: u64,
}

/// A partition of a queue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct QueuePartition {
    /// The queue's name.
    pub queue: String,
    /// The level: 0 is the outermost queue of a composed queue.
    #[serde(default)]
    pub level: u8,
    /// The node's index, and the partition's index within it.
    pub place: [u32; 2],
    /// Packets in it.
    pub packets: u64,
    /// Bytes in it.
    pub bytes: u64,
    /// Its rank.
    pub rank: i64,
    /// It is held until a time.
    pub is_held: bool,
    /// Packets that were sent from it.
    #[serde(default)]
    pub sent: u64,
    /// Packets of it that were dropped, on this level and below.
    #[serde(default)]
    pub dropped: u64,
    /// Packets of it that were ECN-marked, on this level and below.
    #[serde(default)]
    pub marked: u64,
    /// Sojourn times of sent packets, in microseconds: median, 90th and 99th percentile.
    #[serde(default)]
    pub waited_us: [f64; 3],
    /// Its drops and marks by source line.
    #[serde(default)]
    pub lines: Vec<PartitionVerdict>,
}

/// Drops or marks by one source line, for the packets of a partition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PartitionVerdict {
    /// The first version of the program with this text of the queue.
    #[serde(default)]
    pub version: u64,
    /// The source line.
    pub line: u32,
    /// `drop` or `mark`.
    pub verdict: String,
    /// Number of packets.
    pub packets: u64,
}

/// A chain on ports.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PacketChain {
    /// The chain's name.
    pub name: String,
    /// The running version.
    pub version: u64,
    /// Packets that entered the chain, including malformed ones.
    pub frames: u64,
    /// Its elements, in order.
    pub elements: Vec<Element>,
    /// Packets that elements ended.
    pub ends: Vec<PacketEnd>,
    /// Packets with a malformed header.
    pub malformed: Vec<Malformed>,
}

/// Packets that one statement of an element ended.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PacketEnd {
    /// The instance's name.
    pub element: String,
    /// The element's file.
    #[serde(default)]
    pub file: String,
    /// The line in the file.
    pub line: u32,
    /// How the packet ended: `drop`, `abort NOT_FOUND`.
    pub how: String,
    /// Number of packets.
    pub packets: u64,
}

/// Packets that violate a rule of a protocol definition.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Malformed {
    /// The protocol.
    pub protocol: String,
    /// The file of the protocol's definition.
    #[serde(default)]
    pub file: String,
    /// The line of the rule.
    pub line: u32,
    /// The rule.
    pub what: String,
    /// Number of packets.
    pub packets: u64,
}

/// Counts and latencies of calls.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    /// Calls that began.
    pub begun: u64,
    /// Open calls.
    pub open: u64,
    /// Ended calls by status name; only names that occurred.
    pub ended: BTreeMap<String, u64>,
    /// Median latency on this node, in microseconds.
    pub p50_us: f64,
    /// 99th percentile of the latency, in microseconds.
    pub p99_us: f64,
}

/// A chain of one version.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Chain {
    /// The chain's name.
    pub name: String,
    /// The version.
    pub version: u64,
    /// New calls enter it.
    pub is_current: bool,
    /// Open calls in it.
    pub calls_open: u64,
    /// Its elements, in the order in which requests pass them.
    pub elements: Vec<Element>,
}

/// Counters and state of a filter.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Filter {
    /// The chain's name.
    pub chain: String,
    /// The instance's name.
    pub name: String,
    /// Its counters: `calls`, `waited`, `refused`, `tries`, `retries`, `hedges`, `over_budget`, `timeouts`, `repeated`,
    /// `detached`, `opened`, `ejected`.
    pub counts: BTreeMap<String, u64>,
    /// Calls that wait at it.
    pub waiting: u64,
    /// Calls in flight, as CIRCUIT or CONGESTION counts them.
    pub in_flight: u64,
    /// The limit of CONGESTION; 0 without one.
    pub limit: f64,
    /// CIRCUIT refuses calls.
    pub is_open: bool,
}

/// Counters of an element instance.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Element {
    /// The instance's name.
    pub name: String,
    /// Request messages that reached it; without ON REQUEST, the tuples that it handles.
    pub seen: u64,
    /// Tuples that ended with DROP.
    pub dropped: u64,
    /// Tuples that ended with ABORT.
    pub aborted: u64,
    /// Tuples that it answered or redirected.
    pub diverted: u64,
    /// Tuples on which it failed.
    pub failed: u64,
    /// Nanoseconds per tuple, from sampled passes; `None` before the first sample.
    pub ns_per_tuple: Option<f64>,
    /// Number of sampled passes.
    #[serde(default)]
    pub sampled: u64,
}

/// An upstream endpoint.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Endpoint {
    /// The cluster's name.
    pub cluster: String,
    /// The address.
    pub address: String,
    /// Open calls.
    pub active: u64,
    /// Streams of all connections, including those in use.
    #[serde(default)]
    pub places: u64,
    /// Established connections.
    #[serde(default)]
    pub connections: u64,
    /// Calls that wait for a stream.
    #[serde(default)]
    pub waiting: u64,
    /// Calls that were sent.
    pub calls: u64,
    /// Failed connection attempts.
    pub connect_failures: u64,
    /// The resolved addresses of a named endpoint, in the order of connection attempts.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub addresses: Vec<String>,
    /// Why there is no connection: the name has no address, or the last attempt failed.
    #[serde(default)]
    pub down: Option<String>,
}

/// A listener.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Listener {
    /// The listener's name.
    pub name: String,
    /// The listening address.
    pub address: String,
    /// All options.
    #[serde(default)]
    pub options: Vec<Opt>,
}

/// A cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Cluster {
    /// The cluster's name.
    pub name: String,
    /// All options.
    pub options: Vec<Opt>,
}

/// An option of a listener or a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opt {
    /// The option's name.
    pub name: String,
    /// Its value in the syntax of a program: `4 MiB`, `1 s`, `1000`; `none` for an option that is off.
    pub value: String,
    /// The value is the default.
    pub is_default: bool,
}

/// The resolution of an endpoint's name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResolvedName {
    /// The name and the port.
    pub name: String,
    /// Its addresses, in the order of connection attempts.
    pub addresses: Vec<String>,
    /// Why the last lookup failed; earlier addresses stay in use.
    pub error: Option<String>,
    /// The addresses differ from the previous ones.
    pub is_changed: bool,
}
