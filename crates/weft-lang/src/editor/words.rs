//! One-sentence descriptions of the words of the language.

use crate::check::frame;
use crate::check::scope::METAS;
use crate::parser::forms;

/// A word of the language, as an editor shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word {
    /// In capitals; metadata names are in lower case.
    pub word: &'static str,
    /// What it is for.
    pub doc: &'static str,
}

/// The keyword of a text, if it is one; case does not matter.
pub fn keyword(text: &str) -> Option<&'static Word> {
    KEYWORDS.iter().find(|known| known.word.eq_ignore_ascii_case(text))
}

/// The syntax of the constructs that a keyword begins: one example each.
pub fn examples(keyword: &str) -> Vec<&'static str> {
    forms().filter(|(known, _)| known.eq_ignore_ascii_case(keyword)).map(|(_, form)| form).collect()
}

/// The engine's metadata of a tuple: name, type as written, description.
pub fn metas() -> impl Iterator<Item = (&'static str, String, &'static str)> {
    let is_new = |(name, ..): &&(&str, _, _, _)| !METAS.iter().any(|(known, ..)| known == name);
    let known = METAS.iter().chain(frame::METAS.iter().filter(is_new)).map(|(name, _, ty, nullable)| {
        let doc = META_DOCS.iter().find(|known| known.word == *name).map_or("", |known| known.doc);
        (*name, format!("{ty}{}", if *nullable { "?" } else { "" }), doc)
    });
    let egress = META_DOCS.iter().find(|known| known.word == frame::EGRESS);
    known.chain(egress.map(|known| (known.word, "TEXT?".to_owned(), known.doc)))
}

macro_rules! words {
    ($(#[$doc:meta])* $name:ident: $($word:literal $text:literal;)*) => {
        $(#[$doc])*
        pub const $name: &[Word] = &[$(Word { word: $word, doc: $text }),*];
    };
}

words! {
    /// The user metadata of a frame, after `meta.`.
    USER_METADATA_DOCS:
    "tag" "What kind of frame it is.";
    "label" "The state of its flow.";
    "path" "The way that it is to take.";
}

words! {
    /// The descriptions of metadata.
    META_DOCS:
    "call_id" "A number of this call, unique on this node.";
    "elapsed" "The time since the call opened; in `ON RESPONSE` and `ON CLOSE`.";
    "egress" "Where the frame leaves, as far as the stages in front and the chain say; in `ON PACKET`.";
    "ended_by" "The element that ended the call, if one did; in `ON CLOSE`.";
    "flow" "A hash of the frame's addresses, protocol and ports as it arrived; in `ON PACKET`.";
    "index" "Which message of its stream and direction this is, from 0.";
    "is_icmp_error" "Whether the frame is an error of ICMP, about which nobody is told; in `ON PACKET`.";
    "is_intact" "Whether the checksums over the payload are right, or cannot be checked; in `ON PACKET`.";
    "method" "The path of the method: `/shop.Cart/Add`.";
    "packet_id" "A number of this frame, unique on this node; in `ON PACKET`.";
    "packet_size" "Bytes of the longest packet that the frame stands for, without its link header; in `ON PACKET`.";
    "payload" "The message as it is here, inflated and without its frame; in `ON REQUEST` and `ON RESPONSE`.";
    "peer" "The client's address.";
    "port" "The port at which the frame arrived; in `ON PACKET`.";
    "size" "Bytes of the message as it is here, or of the frame as it arrived.";
    "status" "How the call ended; in `ON CLOSE`.";
    "tunnel_depth" "In how many tunnels, one in another, its innermost packet is; in `ON PACKET`.";
    "upstream" "The endpoint that serves the call, if one does; in `ON RESPONSE` and `ON CLOSE`.";
    "version" "The version of the program that handles this tuple.";
}

words! {
    /// Every keyword, sorted.
    KEYWORDS:
    "ABORT" "Ends the call with a gRPC status, a text, and headers or trailers of the answer.";
    "ACCEPT" "Ends `ON ENQUEUE`: the packet waits.";
    "ACCESS" "`TTL ... ON ACCESS`: a row's age counts from the last touch instead of the last write.";
    "ACTIVATE" "`ON ACTIVATE`: a partition that was not in the order has got a packet.";
    "ADD" "Adds to a merged variable or a sketch.";
    "AFTER" "How many errors in a row, or how long, before it acts.";
    "AIMD" "`CONGESTION AIMD`: one more at a time while all goes well, a part fewer when it does not.";
    "ALL" "`CREATE GROUP ... ALL`: a copy leaves by each port whose link is up, but that by which the frame came.";
    "ALTER" "Changes something of a running network; not in this version.";
    "AND" "True if both are. An error on one side is absorbed if the other is false.";
    "ANSWERS" "`ANSWERS UP TO n`: how large an answer may be that is kept.";
    "ANY" "`ANY OF (a, b)`: a name for one of several protocols.";
    "AS" "Gives a name, or begins a body.";
    "ASC" "`BY c ASC`: the row with the least value comes first.";
    "AT" "Where a stage must run: `AT CLIENT` or `AT SERVER`.";
    "BACKOFF" "How long it waits before the next try: `CONSTANT d` or `EXPONENTIAL d TO d`.";
    "BEFORE" "`ORDER a BEFORE b`: this order must stay.";
    "BETWEEN" "`x BETWEEN a AND b`: at least a and at most b.";
    "BIND" "`BIND lower WHERE e [OTHERWISE e]`: which frames of the protocol below carry this one.";
    "BIT" "`bit(n)`: a field of so many bits.";
    "BITS" "Ranks lie in so many bits, and are found by bitmaps.";
    "BOOL" "True or false.";
    "BUDGET" "How many more calls it may make, as a part of those that come.";
    "BURST" "How many calls may come at once.";
    "BY" "`FILLED BY CONTROLLER`: rows come from the program. `JOIN FIRST t BY c`: of all that match, the best.";
    "BYPASS" "`ON FAILURE OF a BYPASS`: if it fails, calls go on without it.";
    "BYTES" "Bytes; with a length where it is stored: `BYTES(16)`.";
    "CALL" "A row for each call: set in one handler, read in a later one.";
    "CALLS" "How many calls are remembered.";
    "CASE" "The value of the first arm that fits.";
    "CAST" "`CAST(e AS T)`: the value as another type, or an error if it does not fit.";
    "CHAIN" "Stages on an edge of the application, in this order.";
    "CHECK" "What must be true of a header, or the frame is malformed.";
    "CIDR" "A network: an address and a length of prefix, `'10.0.0.0/8'`.";
    "CIRCUIT" "Sends no calls for a while to servers that fail.";
    "CLASS" "The header that has the class of a call, for `p.class`: `CLASS header['priority']`.";
    "CLIENT" "`AT CLIENT`: beside the caller.";
    "CLOCK" "`EFFECT CLOCK`: the function looks at the time.";
    "CLOSE" "`ON CLOSE`: once a call, with its status, whoever ended it.";
    "CLUSTER" "Where calls go: endpoints, and how one is picked.";
    "COLUMNS" "What the protocols of a union have in common.";
    "COMPUTED" "The field is computed when a frame is written, and must be so when it is read.";
    "CONCURRENCY" "How many calls of a link may be under way at once; the others wait in its queue.";
    "CONGESTION" "Keeps as many calls under way as the servers take, found out from their answers.";
    "CONSTANT" "`BACKOFF CONSTANT d`: always the same wait.";
    "CONTROLLER" "`FILLED BY CONTROLLER`: no handler writes this table.";
    "COST" "What a call of the function costs, in operations.";
    "COUNT" "A sketch that counts.";
    "CREATE" "Makes something: an element, a chain, a listener, ...";
    "CUT" "`CUT TO n`: the first n bytes of a frame stay.";
    "DEFAULT" "What is written if nobody says otherwise; any value is read.";
    "DELAY" "Holds the tuple so long, after this handler.";
    "DELETE" "Removes the row with a key.";
    "DEQUEUE" "`ON DEQUEUE`: a packet is the first of its partition.";
    "DESC" "`BY c DESC`: the row with the greatest value comes first.";
    "DESCRIPTORS" "A descriptor set, whose messages the program may use: `protoc --include_imports` writes it.";
    "DISTINCT" "`IS DISTINCT FROM`: not equal, with NULL equal to NULL.";
    "DO" "Begins the body of a `SCAN` or of an `ELSE`.";
    "DRAIN" "`PIN STREAM DRAIN d`: how long a stream may stay on its version.";
    "DROP" "At the top: removes something. In a handler: the tuple is gone, and nobody is answered.";
    "EACH" "`a EACH USING b`: each partition of `a` holds a queue `b`.";
    "EDGE" "A way out of an element, for `STEER TO`.";
    "EFFECT" "What a function depends on besides its arguments: `PURE`, `RANDOM` or `CLOCK`.";
    "EJECT" "`EJECT FOR d`: so long no calls go to the endpoint.";
    "ELEMENT" "Handlers over tuples, with typed state.";
    "ELSE" "What happens otherwise.";
    "ELSIF" "The next condition.";
    "EMPTY" "`ON EMPTY`: a partition is first and has no packet.";
    "ENCAP" "`ON ENCAP SET`: what is set in the headers below when this one is put around a packet.";
    "END" "Ends a block.";
    "ENDPOINT" "Where a server is: `'10.0.0.1:7000'`.";
    "ENQUEUE" "`ON ENQUEUE`: a packet comes.";
    "EQUIVALENCE" "How much an optimised chain may differ: strict, observable, output, stochastic or relaxed.";
    "ERROR" "`ON ERROR`: runs in place of a handler that failed. `ERROR WHERE e`: such a header tells of an error.";
    "ERRORS" "`AFTER n ERRORS`: so many in a row.";
    "EVERY" "`ON EVERY d`: once a node and interval, on merged values.";
    "EVICT" "What happens when a table is full: `OLDEST`, `LRU` or `REJECT`. `ON EVICT OF t`: a row made room, `OLD`.";
    "EXISTS" "True if the table has such a row.";
    "EXPONENTIAL" "`BACKOFF EXPONENTIAL d TO d`: each wait twice the one before.";
    "F64" "A floating-point number.";
    "FAIL" "`FAIL OPEN`: an element that fails lets the tuple pass.";
    "FAILOVER" "`CREATE GROUP ... FAILOVER`: frames leave by the first port whose link is up.";
    "FAILURE" "`ON FAILURE OF a BYPASS`: if it fails, calls go on without it.";
    "FALSE" "Not true.";
    "FILE" "A sink's rows are appended to a file.";
    "FILLED" "`FILLED BY CONTROLLER`: rows come from the program or over the admin endpoint.";
    "FILTER" "What is done to calls in time: timeout, retry, hedge, pace, rate, order, circuit.";
    "FIRST" "`JOIN FIRST t BY c ON ...`: of the rows that match, the best. `POSITION a FIRST`: before all others.";
    "FLIGHT" "`IN FLIGHT n`: calls under way, at most.";
    "FOR" "How long.";
    "FORMAT" "How a sink's rows are written: `JSON` or `TEXT`.";
    "FORWARD" "The tuple goes on; what happens at the end of a handler anyway.";
    "FRAGMENT" "`FRAGMENT TO n`: a packet of IPv4 goes on in fragments of at most n bytes, if it may be cut.";
    "FROM" "Where rows, or messages, come from.";
    "FUNCTION" "A native function with its effect, its cost and its inverse; or a parameter that stands for one.";
    "GRADIENT" "`CONGESTION GRADIENT`: as many calls as keep the latency near its least.";
    "GROUP" "Ports that stand together: a frame leaves by one of them, or by all. In \
        `SELECT ... GROUP BY c`, asked with `weft query`: a row for each value of the column.";
    "HALF" "`HALF LIFE d`: a sketch forgets half of what it counted in this time.";
    "HASH" "The hash of the key picks one of so many partitions.";
    "HEAD" "The packet that came first.";
    "HEADER" "`header['k']`: a header of the request in OPEN and REQUEST, else of the response.";
    "HEDGE" "Sends a call again before the first answer is there, and takes the first that comes.";
    "HOLD" "Ends `ON SELECT` or `ON DEQUEUE`: the partition waits.";
    "I16" "A signed integer of 16 bits.";
    "I32" "A signed integer of 32 bits.";
    "I64" "A signed integer of 64 bits.";
    "I8" "A signed integer of 8 bits.";
    "ID" "By which a message is known to be the same.";
    "IF" "Does the first block whose condition is true.";
    "IMPORT" "Brings in another file; the library is `IMPORT 'library/...'`.";
    "IN" "True if it is one of a list, or an address in a network.";
    "INDEX" "The key is the number of the partition.";
    "INGRESS" "The link holds up what comes in.";
    "INNER" "What is carried is a frame of its own: its fields are those of `inner.`.";
    "INPUT" "The tuple at hand: `input.user` is its column.";
    "INSERT" "A new row of a table or sink. `TTL ... ON INSERT`: a row's age counts from when it came.";
    "INT" "A signed integer of 64 bits: I64.";
    "INTERVAL" "A length of time: `'50 ms'`.";
    "INTO" "Where a row or a value goes.";
    "INVERSE" "`INVERSE OF f`: undoes what f does, so that the pair may be crossed as a whole.";
    "IPADDR" "An IPv4 or IPv6 address.";
    "IS" "`IS NULL`, `IS NOT NULL`, `IS DISTINCT FROM`.";
    "JITTER" "By how much a wait varies, by chance.";
    "JOIN" "The row of a table with a key; without one the guard does not match.";
    "JSON" "A sink writes each row as an object.";
    "KEY" "The columns that tell rows apart.";
    "KEYS" "How many keys are told apart, at most.";
    "LAST" "`POSITION a LAST`: behind all others. `c = LAST a.x | b.y`: of the last of these headers.";
    "LATENCY" "Above which latency it holds that there are too many calls.";
    "LAYER" "`LENGTH OF LAYER e`: the length of header and payload.";
    "LEAST" "`USING LEAST REQUEST`: the endpoint with the fewest calls under way.";
    "LEAVE" "Ends `ON EMPTY`: the partition leaves the order.";
    "LEFT" "`LEFT JOIN`: without a row its columns are NULL, and the guard goes on.";
    "LENGTH" "How many bytes the payload has.";
    "LESS" "`TIMEOUT PROPAGATE LESS d`: the server is told so much less than is left.";
    "LET" "Names a value for the rest of the block.";
    "LIFE" "`HALF LIFE d`: a sketch forgets half of what it counted in this time.";
    "LIKE" "True if a text fits a pattern: `%` is any run, `_` one character.";
    "LIMIT" "`SELECT ... LIMIT n`, asked with `weft query`: so many rows at most.";
    "LINK" "What leaves or comes in by a port, with a rate and a queue; or calls of a listener or a cluster that wait.";
    "LISTENER" "Where sessions enter.";
    "LITTLE" "The least significant byte first.";
    "LRU" "When the table is full, the row goes that was not touched for the longest time.";
    "MAC" "An Ethernet address.";
    "MALFORMED" "`MALFORMED IS PAYLOAD`: a header that breaks a rule is none, and bytes stand there.";
    "MANDATORY" "The stage may not be passed by, and may not fail open.";
    "MARK" "Tells the queues behind what is known of a message: `MARK 3;`, `MARK (remaining = n, slack = '20 ms');`.";
    "MAX" "How many rows, at most.";
    "MERGE" "Every worker keeps its own value; `ON EVERY` reads them as one.";
    "MESSAGE" "Sends a message of its own.";
    "METHOD" "Which methods: `'shop.Cart/*'`.";
    "METRICS" "A sink's rows are shown by the admin endpoint.";
    "MIN" "The least.";
    "MIRROR" "Sends a copy of the call elsewhere; nobody waits for its answer.";
    "MOST" "`RELIABILITY AT MOST ONCE`: a call is never sent again.";
    "NATIVE" "`AS NATIVE 'name'`: a function whose code is built in.";
    "NEXT" "Ends `ON SELECT`: the partition goes behind those of its rank.";
    "NOT" "True if it is not.";
    "NULL" "No value.";
    "OF" "Whose.";
    "OLDEST" "When the table is full, the row goes that was written the longest time ago.";
    "ON" "Begins a handler, or says on what.";
    "ONCE" "`RELIABILITY AT LEAST ONCE` or `AT MOST ONCE`.";
    "OPEN" "`ON OPEN`: once a call, when its headers are there.";
    "OR" "True if either is. An error on one side is absorbed if the other is true.";
    "ORDER" "`ORDER a BEFORE b`: this order must stay. In a filter: calls of a key go one after the other.";
    "OTHERWISE" "`BIND lower WHERE e OTHERWISE f`: and where `f` is true of what no other protocol claims.";
    "OUTLIER" "Sends no calls for a while to an endpoint that fails.";
    "OUTPUT" "`INSERT INTO output SELECT ...`: the tuple goes on if the query has a row.";
    "OVER" "The transport that calls go over: `tcp` or `unix`.";
    "OVERFLOW" "What goes when there is more than the limit.";
    "PACE" "Spreads calls evenly to a rate; those that come too soon wait.";
    "PACKET" "`ON PACKET`: for each frame.";
    "PACKETS" "A limit in packets; `ORDER PACKETS` orders those of one line.";
    "PARTITION" "The part of a queue that a packet waits in: a flow, a host, a class.";
    "PARTITIONS" "`ORDER PARTITIONS BY rank`: the lowest goes first.";
    "PAYLOAD" "`REPLY PAYLOAD e`: answers with these bytes as the message.";
    "PEEK" "`peek bit(n)`: the first bits behind the header.";
    "PER" "`PER WORKER`: each worker has a table of its own. `PER key`: each key by itself.";
    "PERCENT" "Of a hundred.";
    "PIN" "`PIN STREAM DRAIN d`: streams stay on their version.";
    "POLICY" "Rules that choose a stack; not in this version.";
    "POP" "Takes headers off a frame: `POP TO inner.ip`, `POP vlan`, or those up to the layer of the element.";
    "PORT" "Where frames come in and go out: a device, a capture, or memory.";
    "PORTS" "`FILLED BY PORTS`: the rows of a table are the ports of the program.";
    "POSITION" "`POSITION a FIRST` or `LAST`.";
    "PRIMARY" "`PRIMARY KEY`: the columns that tell rows apart.";
    "PRIORITY" "`PRIORITY a > b`: licenses another order than the analysis allows.";
    "PROBES" "How many calls try whether the servers answer again.";
    "PROPAGATE" "`TIMEOUT PROPAGATE`: the server is told how much time is left.";
    "PROTO" "A `.proto` file, whose messages the program may use.";
    "PROTOCOL" "A wire format: fields, what must be true of them, and what stands behind them.";
    "PURE" "`EFFECT PURE`: the function depends on its arguments alone.";
    "PUSH" "Puts headers on a frame, in the order of the wire: `PUSH vlan (id = 7)`.";
    "QUEUE" "In a filter: how many calls may wait. At the top: a queue program, which says how packets and calls wait.";
    "RANDOM" "`USING RANDOM`: any endpoint. `EFFECT RANDOM`: the function draws by chance.";
    "RATE" "How many calls may pass, by key; others wait or are refused.";
    "RATIO" "`RATIO p PERCENT OF n IN d`: so great a part of the calls failed.";
    "REDIRECT" "Sends the call to another cluster or endpoint.";
    "REJECT" "When the table is full, a new row is an error.";
    "RELIABILITY" "How often a call may reach the server: `AT MOST ONCE` or `AT LEAST ONCE`.";
    "REPEAT" "A part of a header that is there over and over.";
    "REPLACE" "`CREATE OR REPLACE`: takes the place of an earlier one, as a row of `INSERT OR REPLACE` does.";
    "REPLY" "Answers the call, without asking the server.";
    "REQUEST" "`ON REQUEST`: for each message of the client.";
    "RESERVED" "Written as zero; any value is read.";
    "RESET" "Sets a merged variable back to its start.";
    "RESPONSE" "`ON RESPONSE`: for each message of the server.";
    "RETRY" "Sends a call again that failed.";
    "RETURNING" "Columns of the row after the change, and where their values go.";
    "RETURNS" "Columns of the response.";
    "ROBIN" "`USING ROUND ROBIN`: one endpoint after the other.";
    "ROTATE" "Ends `ON DEQUEUE`: the packet is sent, and its partition goes behind those of its rank.";
    "ROUND" "`USING ROUND ROBIN`: one endpoint after the other.";
    "ROUTE" "Calls of a listener that go to a cluster.";
    "ROWS" "Of a table.";
    "SCAN" "Looks at rows of a table one by one, at most so many.";
    "SECOND" "`PER SECOND`";
    "SELECT" "A guard: the tuple goes on if it matches, with the columns that are set here.";
    "SEND" "Ends `ON DEQUEUE`: the packet is sent.";
    "SERVE" "Ends `ON SELECT`: the partition is served.";
    "SERVER" "`AT SERVER`: beside the callee.";
    "SESSION" "`SESSION KEY (a, b)`: the fields that tell sessions apart.";
    "SET" "Changes a column, a header, a trailer, a variable or a cell of the call.";
    "SIGNAL" "Tells other elements something.";
    "SINK" "Where rows go that leave the network: logs and metrics.";
    "SIZE" "A number of bytes: `'36 KB'`.";
    "SKETCH" "Counts by key in bounded memory, with a stated error.";
    "STACK" "A protocol stack over a path; not in this version.";
    "STAGE" "`FILLED BY STAGE e`: it is the table of this name of another stage of the chain.";
    "STATUS" "A gRPC status: `UNAVAILABLE`.";
    "STAY" "Ends `ON EMPTY`: the partition stays in the order.";
    "STDOUT" "A sink's rows go to standard output.";
    "STEER" "Sends the tuple over an edge of the element.";
    "STREAM" "`PIN STREAM DRAIN d`: streams stay on their version.";
    "SUM" "Added up.";
    "SWITCH" "What the payload is, by a number of the header.";
    "TABLE" "State: rows with a key, typed columns and a bound.";
    "TAIL" "The packet that came last.";
    "TEXT" "UTF-8 text; with a length in bytes where it is stored: `TEXT(64)`.";
    "THEN" "What happens if so.";
    "TIMEOUT" "In a filter: ends a call that takes too long. `ON TIMEOUT OF t`: a row has expired, `OLD`.";
    "TIMESTAMP" "A point in time.";
    "TO" "Where it goes.";
    "TOLERANCE" "How far above its least the latency may be.";
    "TOP" "A sketch keeps the keys that it counted most.";
    "TOTAL" "`TIMEOUT TOTAL d`: for the call with all its tries.";
    "TRAILER" "`trailer['k']`: a trailer of the response.";
    "TRUE" "True.";
    "TRY" "`TIMEOUT TRY d`: for each try of a call. `PER TRY`: an element runs for each try.";
    "TTL" "How long a row is there after its last write, `ON ACCESS` also read, or `ON INSERT` at most.";
    "TYPE" "The messages of a `.proto` file.";
    "U1" "A bit.";
    "U16" "An unsigned integer of 16 bits.";
    "U32" "An unsigned integer of 32 bits.";
    "U64" "An unsigned integer of 64 bits.";
    "U8" "An unsigned integer of 8 bits.";
    "UNTIL" "A repetition ends behind the first round of which this is true.";
    "UP" "`UP TO n`: at most.";
    "UPDATE" "Changes the row with a key; `ELSE` if there is none.";
    "UPSERT" "Changes the row with a key, which is made if there is none.";
    "USING" "By which columns, or by which rule.";
    "VALUES" "The values of rows.";
    "VAR" "One value for the node.";
    "WAIT" "How long a call waits at most.";
    "WAYS" "Keys are told apart within sets of so many partitions.";
    "WEIGHT" "`ON PORT a WEIGHT 3, b`, `TO 'a:1' WEIGHT 3, ...`: the share of a port of a group, or of an endpoint.";
    "WHEN" "On which condition.";
    "WHERE" "Which rows or tuples; unknown is not true.";
    "WINDOW" "A sketch counts what came in this time.";
    "WITH" "Options; headers and trailers of an answer.";
    "WORKER" "`PER WORKER`: each worker has a table of its own.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_parser_word_has_docs() {
        // A keyword without a description shows an empty window in an editor.
        assert!(KEYWORDS.windows(2).all(|pair| pair[0].word < pair[1].word), "sorted, and none twice");
        for (word, _) in forms() {
            assert!(keyword(word).is_some(), "{word} is not explained");
        }
        for word in crate::parser::words() {
            assert!(keyword(word).is_some(), "{word} is not explained");
        }
        assert!(metas().all(|(_, _, doc)| !doc.is_empty()), "what the engine knows is explained");
    }
}
