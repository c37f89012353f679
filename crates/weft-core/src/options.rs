//! The options of listeners and clusters: one table for each. The checker, the editor, the reference manual and the
//! status of a node read the tables; the engine gets its values from them.

use crate::{Interval, Type};

/// Maximum of `message_size_max`: a worker holds [`crate::limits::SCRATCH_BYTES_MAX`] for the edits of one message.
pub const MESSAGE_BYTES_MAX: i64 = 64 << 20;
/// Maximum of `header_size_max`.
pub const HEADER_BYTES_MAX: i64 = 1 << 20;
/// Maximum of `streams_max`.
pub const STREAMS_MAX: i64 = 1 << 16;
/// Maximum and default of `connections_max`: client connections that a worker accepts.
pub const CLIENTS_MAX: i64 = 1 << 16;
/// Maximum of `connections` and `connections_max`: connections from a worker to one endpoint.
pub const CONNECTIONS_MAX: i64 = 16_384;
/// Default of `connections`: connections from a worker to one endpoint that it opens on demand.
pub const CONNECTIONS_DEFAULT: u32 = 8;
/// Default limit of those connections where streams are long, unless `connections_max` or `connections` is set.
pub const CONNECTIONS_GROWN_MAX: u32 = 64;
/// Maximum of `reset_budget` and `reset_budget_per_s`.
pub const RESETS_MAX: i64 = 1_000_000;
/// Maximum weight of an endpoint.
pub const ENDPOINT_WEIGHT_MAX: u32 = 100;

/// An option that a program can set.
///
/// `docs/src/reference/program.md` has a row for each; a test of `weft` compares it with [`OptionDef::page_row`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OptionDef {
    /// Its name.
    pub name: &'static str,
    /// INTERVAL, SIZE or I64.
    pub ty: Type,
    /// The default value; None if the option is then off.
    pub default: Option<i64>,
    /// The least value.
    pub min: i64,
    /// The greatest value.
    pub max: i64,
    /// A sentence or two about what it does.
    pub doc: &'static str,
}

impl OptionDef {
    /// The row of the reference: `| option | default | from, to | what it does |`.
    pub fn page_row(&self) -> String {
        let Self { name, ty, default, min, max, doc } = self;
        let ty = if matches!(ty, Type::Int(_)) { "I64".to_owned() } else { ty.to_string() };
        let [default, min, max] = [*default, Some(*min), Some(*max)].map(|value| self.text(value));
        format!("| `{name} {ty}` | {default} | {min}, {max} | {doc} |")
    }

    /// A value in program syntax, as behind `=`.
    pub fn literal(&self, value: i64) -> String {
        let text = self.text(Some(value));
        if matches!(self.ty, Type::Int(_)) { text } else { format!("'{text}'") }
    }

    /// A value in readable form: `4 MiB`, `1 s`, `1000`, and `none`.
    pub fn text(&self, value: Option<i64>) -> String {
        const UNITS: [(&str, i64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];
        const TIMES: [(&str, i64); 3] = [("d", 86_400), ("h", 3_600), ("min", 60)];
        const SECOND: i64 = Interval::from_secs(1).as_nanos();
        let Some(value) = value else { return "none".to_owned() };
        match self.ty {
            Type::Size => match UNITS.iter().find(|(_, bytes)| value >= *bytes && value % bytes == 0) {
                Some((unit, bytes)) => format!("{} {unit}", value / bytes),
                None => format!("{value} B"),
            },
            Type::Interval => {
                let whole = |(_, seconds): &&(&str, i64)| value > 0 && value % (seconds * SECOND) == 0;
                match TIMES.iter().find(whole) {
                    Some((unit, seconds)) => format!("{} {unit}", value / (seconds * SECOND)),
                    None => Interval(value).to_string(),
                }
            }
            _ => value.to_string(),
        }
    }
}

/// An option value in the type that the engine uses.
trait Stored: Copy {
    fn from_raw(raw: Option<i64>) -> Self;
    fn raw(self) -> Option<i64>;
}

impl Stored for u32 {
    fn from_raw(raw: Option<i64>) -> Self {
        raw.and_then(|raw| Self::try_from(raw).ok())
            .expect("the table has a default, and values within 32 bits")
    }

    fn raw(self) -> Option<i64> {
        Some(i64::from(self))
    }
}

impl Stored for Interval {
    fn from_raw(raw: Option<i64>) -> Self {
        Self(raw.expect("the table has a default"))
    }

    fn raw(self) -> Option<i64> {
        Some(self.0)
    }
}

impl<T: Stored> Stored for Option<T> {
    fn from_raw(raw: Option<i64>) -> Self {
        raw.map(|raw| T::from_raw(Some(raw)))
    }

    fn raw(self) -> Option<i64> {
        self.and_then(Stored::raw)
    }
}

macro_rules! options {
    ($(#[$meta:meta])* $Options:ident, $(#[$table_meta:meta])* $TABLE:ident:
     $($name:ident: $Field:ty, $ty:expr, $default:expr, $min:expr, $max:expr, $doc:literal;)*) => {
        $(#[$table_meta])*
        pub const $TABLE: &[OptionDef] = &[$(OptionDef {
            name: stringify!($name), ty: $ty, default: $default, min: $min, max: $max, doc: $doc,
        }),*];

        $(#[$meta])*
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub struct $Options { $(#[doc = $doc] pub $name: $Field),* }

        impl Default for $Options {
            fn default() -> Self {
                Self { $($name: Stored::from_raw($default)),* }
            }
        }

        impl $Options {
            /// Sets an option to a value within its range.
            pub fn set(&mut self, name: &str, value: i64) {
                match name {
                    $(stringify!($name) => self.$name = Stored::from_raw(Some(value)),)*
                    _ => panic!("the checker refuses unknown options: {name}"),
                }
            }

            /// All options with their values.
            pub fn values(&self) -> impl Iterator<Item = (&'static OptionDef, Option<i64>)> {
                $TABLE.iter().zip([$(self.$name.raw()),*])
            }
        }
    };
}

const COUNT: Type = Type::Int(64);
const SIZE: Type = Type::Size;
const TIME: Type = Type::Interval;

const KIB: i64 = 1 << 10;
const MIB: i64 = 1 << 20;
const MS: i64 = 1_000_000;
const SECOND: i64 = 1_000 * MS;
const HOUR: i64 = 3_600 * SECOND;
const YEAR: i64 = 365 * 24 * HOUR;

const _: () =
    assert!(CONNECTIONS_DEFAULT <= CONNECTIONS_GROWN_MAX && CONNECTIONS_GROWN_MAX as i64 <= CONNECTIONS_MAX);
const _: () = assert!(HEADER_BYTES_MAX <= MESSAGE_BYTES_MAX && MESSAGE_BYTES_MAX <= u32::MAX as i64);

options! {
    /// What a listener allows and requires of its clients.
    ListenerOptions,
    /// The options of a listener.
    LISTENER_OPTIONS:
    message_size_max: u32, SIZE, Some(4 * MIB), KIB, MESSAGE_BYTES_MAX,
        "Longest request message that a chain or filter reads, before and after decompression. A longer one \
         ends its call with RESOURCE_EXHAUSTED.";
    header_size_max: u32, SIZE, Some(16 * KIB), KIB, HEADER_BYTES_MAX,
        "Largest header list of a request, plus 32 bytes per header (RFC 9113 section 6.5.2). Applies to \
         new connections.";
    streams_max: u32, COUNT, Some(1000), 1, STREAMS_MAX,
        "Open calls per connection. Applies to new connections.";
    connections_max: u32, COUNT, Some(CLIENTS_MAX), 1, CLIENTS_MAX,
        "Client connections per worker. Further ones are closed at once.";
    idle_timeout: Option<Interval>, TIME, None, 100 * MS, YEAR,
        "Closes a connection, after a GOAWAY, when it had no call for this time.";
    keepalive_time: Interval, TIME, Some(60 * SECOND), SECOND, YEAR,
        "Sends a PING to a client that is silent for this time.";
    keepalive_timeout: Interval, TIME, Some(20 * SECOND), 100 * MS, HOUR,
        "Closes the connection of a client that does not answer the PING within this time.";
    connection_age_max: Option<Interval>, TIME, None, 100 * MS, YEAR,
        "A connection of this age, plus or minus 10 %, gets a GOAWAY and accepts no further calls.";
    connection_age_grace: Option<Interval>, TIME, None, MS, YEAR,
        "Calls left on an old connection after this time end with UNAVAILABLE. Without it they run to their \
         end.";
    reset_budget: u32, COUNT, Some(1000), 1, RESETS_MAX,
        "Streams that a client may reset, or cause to be reset, at once. Beyond it, its connection ends \
         with ENHANCE_YOUR_CALM.";
    reset_budget_per_s: u32, COUNT, Some(100), 1, RESETS_MAX,
        "Refill of that budget per second. A stream that ends well adds one more.";
    drain_delay: Option<Interval>, TIME, None, MS, HOUR,
        "When the node stops, the listener stays open for this time while `/healthz` says 503, so that load \
         balancers turn away first.";
}

options! {
    /// How to connect to a cluster, and what its servers may send.
    ClusterOptions,
    /// The options of a cluster.
    CLUSTER_OPTIONS:
    connect_timeout: Interval, TIME, Some(SECOND), MS, HOUR,
        "Time to establish a connection, over all addresses of its endpoint.";
    connections: Option<u32>, COUNT, None, 1, CONNECTIONS_MAX,
        "Connections from a worker to one endpoint, opened as calls need them. Without it 8.";
    connections_max: Option<u32>, COUNT, None, 1, CONNECTIONS_MAX,
        "Connections if streams are long and calls wait. Without it `connections`, and without both 64.";
    deadline: Option<Interval>, TIME, None, 1_000, YEAR,
        "The deadline of calls whose client sets none.";
    message_size_max: u32, SIZE, Some(4 * MIB), KIB, MESSAGE_BYTES_MAX,
        "Longest response message that a chain or filter reads, before and after decompression. A longer \
         one ends its call with RESOURCE_EXHAUSTED.";
    header_size_max: u32, SIZE, Some(16 * KIB), KIB, HEADER_BYTES_MAX,
        "Largest header list of a response, counted as for a listener. Applies to new connections.";
    streams_max: u32, COUNT, Some(1024), 1, STREAMS_MAX,
        "Open calls per connection, if the server permits as many. Applies to new connections.";
    idle_timeout: Option<Interval>, TIME, None, 100 * MS, YEAR,
        "Closes a connection that had no call for this time.";
    keepalive_time: Interval, TIME, Some(30 * SECOND), SECOND, YEAR,
        "Sends a PING to a server that owes a response and is silent for this time.";
    keepalive_timeout: Interval, TIME, Some(10 * SECOND), 100 * MS, HOUR,
        "Closes the connection to a server that does not answer the PING within this time.";
    connection_age_max: Option<Interval>, TIME, None, 100 * MS, YEAR,
        "A connection of this age, plus or minus 10 %, accepts no further calls; the worker opens others as \
         calls need them.";
    connection_age_grace: Option<Interval>, TIME, None, MS, YEAR,
        "Calls left on an old connection after this time end with UNAVAILABLE. Without it they run to their \
         end.";
    reset_budget: u32, COUNT, Some(1000), 1, RESETS_MAX,
        "Streams that a server may reset at once. Beyond it, its connection ends with ENHANCE_YOUR_CALM.";
    reset_budget_per_s: u32, COUNT, Some(100), 1, RESETS_MAX,
        "Refill of that budget per second. A stream that ends well adds one more.";
    backoff_base: Interval, TIME, Some(50 * MS), MS, HOUR,
        "An endpoint gets no calls for this time after a failed connection. The time doubles with each \
         further failure.";
    backoff_max: Interval, TIME, Some(5 * SECOND), MS, HOUR,
        "The longest time without calls after failures.";
}

impl ClusterOptions {
    /// The connections that a worker opens to one endpoint: on demand, and where streams are long.
    pub fn connections_allowed(&self) -> (u32, u32) {
        let few = self.connections.unwrap_or(CONNECTIONS_DEFAULT);
        let most = self.connections_max.or(self.connections).unwrap_or(CONNECTIONS_GROWN_MAX);
        (few.min(most), most)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn option_default_is_in_range() {
        // The checker would never have seen a default that no program can write.
        for def in LISTENER_OPTIONS.iter().chain(CLUSTER_OPTIONS) {
            assert!(def.min <= def.max, "{}", def.name);
            assert!(def.default.is_none_or(|value| (def.min..=def.max).contains(&value)), "{}", def.name);
            assert!(def.doc.ends_with('.'), "{}", def.name);
        }
    }

    #[test]
    fn option_value_round_trips() {
        // A row with the wrong field would change another option.
        let mut listener = ListenerOptions::default();
        LISTENER_OPTIONS.iter().for_each(|def| listener.set(def.name, def.max));
        assert!(listener.values().all(|(def, value)| value == Some(def.max)));
        let mut cluster = ClusterOptions::default();
        assert!(cluster.values().all(|(def, value)| value == def.default));
        CLUSTER_OPTIONS.iter().for_each(|def| cluster.set(def.name, def.min));
        assert!(cluster.values().all(|(def, value)| value == Some(def.min)));
    }

    #[test]
    fn option_prints_in_largest_unit() {
        let def =
            |name: &str| LISTENER_OPTIONS.iter().find(|def| def.name == name).expect("a listener option");
        let size = def("message_size_max");
        assert_eq!(
            [4 << 20, 1536, 1 << 30, 7].map(|n| size.text(Some(n))),
            ["4 MiB", "1536 B", "1 GiB", "7 B"]
        );
        let time = def("keepalive_time");
        assert_eq!([60 * SECOND, 90 * SECOND, YEAR].map(|n| time.text(Some(n))), ["1 min", "90 s", "365 d"]);
        assert_eq!(def("idle_timeout").text(None), "none");
    }
}
