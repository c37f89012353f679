//! One-sentence descriptions of the words of the language.

use crate::check::frame;
use crate::check::view::FRAME_METAS;
use crate::check::view::METAS;
use crate::parser::forms;

/// A word of the language, as an editor shows it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Word {
    /// In capitals; metadata names are in lower case.
    pub word: &'static str,
    /// Its description.
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
    let known = METAS.iter().chain(FRAME_METAS.iter().filter(is_new)).map(|(name, _, ty, nullable)| {
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
    "tag" "The kind of the frame.";
    "label" "The state of the frame's flow.";
    "path" "The path that the frame should take.";
}

words! {
    /// The descriptions of metadata.
    META_DOCS:
    "call_id" "The number of this call, unique on this node.";
    "elapsed" "The time since the call opened; in `ON RESPONSE` and `ON CLOSE`.";
    "egress" "The output of the frame, as decided so far by earlier stages and the chain; in `ON PACKET`.";
    "ended_by" "The element that ended the call, if any; in `ON CLOSE`.";
    "flow" "A hash of the frame's addresses, protocol and ports on arrival; in `ON PACKET`.";
    "index" "The number of the message in its stream and direction, from 0.";
    "is_icmp_error" "Whether the frame is an ICMP error, which must not trigger another one; in `ON PACKET`.";
    "is_intact" "Whether the checksums over the payload are correct, or cannot be checked; in `ON PACKET`.";
    "method" "The path of the method: `/shop.Cart/Add`.";
    "packet_id" "The number of this frame, unique on this node; in `ON PACKET`.";
    "packet_size" "The length of the longest packet in the frame, without its link header; in `ON PACKET`.";
    "payload" "The current message, decompressed and without its frame; in `ON REQUEST` and `ON RESPONSE`.";
    "peer" "The client's address.";
    "port" "The arrival port of the frame; in `ON PACKET`.";
    "size" "The size of the current message, or of the frame on arrival.";
    "status" "The status of the call; in `ON CLOSE`.";
    "tunnel_depth" "The number of tunnels around its innermost packet; in `ON PACKET`.";
    "upstream" "The endpoint that serves the call, if any; in `ON RESPONSE` and `ON CLOSE`.";
    "version" "The version of the program that handles this tuple.";
}

words! {
    /// Every keyword, sorted.
    KEYWORDS:
    "ABORT" "Ends the call with a gRPC status, a text, and headers or trailers of the response.";
    "ACCEPT" "Ends `ON ENQUEUE`: the packet is queued.";
    "ACCESS" "`TTL ... ON ACCESS`: a row's age counts from the last access instead of the last write.";
    "ACTIVATE" "`ON ACTIVATE`: a partition outside the order got a packet.";
    "ADD" "Adds to a merged variable or a sketch.";
    "AFTER" "The number of consecutive errors, or the time, before it acts.";
    "AIMD" "`CONGESTION AIMD`: additive increase, multiplicative decrease of the limit.";
    "ALL" "`CREATE GROUP ... ALL`: a copy leaves through each port whose link is up, except the frame's arrival port.";
    "ALTER" "Changes an object of a running network; not supported in this version.";
    "AND" "True if both are. An error on one side is absorbed if the other is false.";
    "ANSWERS" "`ANSWERS UP TO n`: the maximum size of a stored response.";
    "ANY" "`ANY OF (a, b)`: a name for one of several protocols.";
    "AS" "Introduces a name or a body.";
    "ASC" "`BY c ASC`: the row with the smallest value comes first.";
    "AT" "The location of a stage: `AT CLIENT` or `AT SERVER`.";
    "BACKOFF" "The wait before the next try: `CONSTANT d` or `EXPONENTIAL d TO d`.";
    "BEFORE" "`ORDER a BEFORE b`: this order is kept.";
    "BETWEEN" "`x BETWEEN a AND b`: at least a and at most b.";
    "BIND" "`BIND lower WHERE e [OTHERWISE e]`: the frames of the lower protocol that carry this one.";
    "BIT" "`bit(n)`: a field of n bits.";
    "BITS" "The width of ranks in bits; such ranks are found by bitmaps.";
    "BOOL" "True or false.";
    "BUDGET" "The maximum number of additional calls, relative to the arriving calls.";
    "BURST" "The number of calls allowed at once.";
    "BY" "`FILLED BY CONTROLLER`: rows come from the program. `JOIN FIRST t BY c`: the best of the matching rows.";
    "BYPASS" "`ON FAILURE OF a BYPASS`: if it fails, calls continue without it.";
    "BYTES" "Bytes; with a length in stored data: `BYTES(16)`.";
    "CALL" "A row for each call: written in one handler, read in a later one.";
    "CALLS" "The number of remembered calls.";
    "CASE" "The value of the first matching arm.";
    "CAST" "`CAST(e AS T)`: the value as another type, or an error if it does not fit.";
    "CHAIN" "Stages on an edge of the application, in this order.";
    "CHECK" "A condition on a header; a frame that violates it is malformed.";
    "CIDR" "A network: an address and a prefix length, `'10.0.0.0/8'`.";
    "CIRCUIT" "Stops calls to failing servers for a while.";
    "CLASS" "The header with the class of a call, for `p.class`: `CLASS header['priority']`.";
    "CLIENT" "`AT CLIENT`: at the client side.";
    "CLOCK" "`EFFECT CLOCK`: the function reads the clock.";
    "CLOSE" "`ON CLOSE`: once per call, with its status, after any kind of end.";
    "CLUSTER" "A set of endpoints for calls, with a balancing policy.";
    "COLUMNS" "The columns common to the protocols of a union.";
    "COMPUTED" "The field is computed when a frame is written, and checked when a frame is read.";
    "CONCURRENCY" "The maximum number of calls in flight on a link; others wait in its queue.";
    "CONGESTION" "Limits calls in flight to the capacity of the servers, estimated from their responses.";
    "CONSTANT" "`BACKOFF CONSTANT d`: a constant wait.";
    "CONTROLLER" "`FILLED BY CONTROLLER`: the controller fills the table; no handler writes it.";
    "COST" "The cost of a call of the function, in operations.";
    "COUNT" "A sketch that counts.";
    "CREATE" "Creates an object: an element, a chain, a listener, ...";
    "CUT" "`CUT TO n`: truncates a frame to its first n bytes.";
    "DEFAULT" "The value written by default; any value is accepted when read.";
    "DELAY" "Delays the tuple after this handler.";
    "DELETE" "Deletes the row with a key.";
    "DEQUEUE" "`ON DEQUEUE`: a packet is at the head of its partition.";
    "DESC" "`BY c DESC`: the row with the largest value comes first.";
    "DESCRIPTORS" "A descriptor set with messages for the program, written by `protoc --include_imports`.";
    "DISTINCT" "`IS DISTINCT FROM`: not equal, with NULL equal to NULL.";
    "DO" "Begins the body of a `SCAN` or of an `ELSE`.";
    "DRAIN" "`PIN STREAM DRAIN d`: the maximum time of a stream on its version.";
    "DROP" "At top level: removes an object. In a handler: drops the tuple without a response.";
    "EACH" "`a EACH USING b`: each partition of `a` contains a queue `b`.";
    "EDGE" "An output of an element, for `STEER TO`.";
    "EFFECT" "What a function depends on besides its arguments: `PURE`, `RANDOM` or `CLOCK`.";
    "EJECT" "`EJECT FOR d`: the time without calls to the endpoint.";
    "ELEMENT" "Handlers over tuples, with typed state.";
    "ELSE" "The alternative.";
    "ELSIF" "The next condition.";
    "EMPTY" "`ON EMPTY`: a partition is selected but has no packet.";
    "ENCAP" "`ON ENCAP SET`: fields of lower headers that are set when this header is pushed onto a packet.";
    "END" "Ends a block.";
    "ENDPOINT" "The address of a server: `'10.0.0.1:7000'`.";
    "ENQUEUE" "`ON ENQUEUE`: a packet arrives.";
    "EQUIVALENCE" "How much an optimised chain may differ: strict, observable, output, stochastic or relaxed.";
    "ERROR" "`ON ERROR`: runs instead of a failed handler. `ERROR WHERE e`: a header that reports an error.";
    "ERRORS" "`AFTER n ERRORS`: the number of consecutive errors.";
    "EVERY" "`ON EVERY d`: once per node and interval, on merged values.";
    "EVICT" "The eviction policy of a full table: `OLDEST`, `LRU` or `REJECT`. `ON EVICT OF t`: the row `OLD` \
             was evicted.";
    "EXISTS" "True if the table has a matching row.";
    "EXPONENTIAL" "`BACKOFF EXPONENTIAL d TO d`: the wait doubles after each try.";
    "F64" "A floating-point number.";
    "FAIL" "`FAIL OPEN`: a failing element lets the tuple pass.";
    "FAILOVER" "`CREATE GROUP ... FAILOVER`: frames leave through the first port whose link is up.";
    "FAILURE" "`ON FAILURE OF a BYPASS`: if it fails, calls continue without it.";
    "FALSE" "Not true.";
    "FILE" "A sink's rows are appended to a file.";
    "FILLED" "`FILLED BY CONTROLLER`: rows come from the program or over the admin endpoint.";
    "FILTER" "Policies of calls: timeout, retry, hedge, pace, rate, order, circuit.";
    "FIRST" "`JOIN FIRST t BY c ON ...`: the best of the matching rows. `POSITION a FIRST`: before all others.";
    "FLIGHT" "`IN FLIGHT n`: the maximum number of calls in flight.";
    "FOR" "A duration.";
    "FORMAT" "The format of a sink's rows: `JSON` or `TEXT`.";
    "FORWARD" "Forwards the tuple; the default at the end of a handler.";
    "FRAGMENT" "`FRAGMENT TO n`: forwards an IPv4 packet in fragments of at most n bytes, if fragmentation is allowed.";
    "FROM" "The source of rows or messages.";
    "FUNCTION" "A native function with its effect, cost and inverse; or a parameter that takes a function.";
    "GRADIENT" "`CONGESTION GRADIENT`: adjusts the limit to keep the latency near its minimum.";
    "GROUP" "A group of ports: a frame leaves through one of them, or through all. In \
        `SELECT ... GROUP BY c` of `weft query`: one row per value of the column.";
    "HALF" "`HALF LIFE d`: a sketch forgets half of what it counted in this time.";
    "HASH" "The number of partitions; the hash of the key selects one.";
    "HEAD" "The packet that arrived first.";
    "HEADER" "`header['k']`: a header of the request in OPEN and REQUEST, otherwise of the response.";
    "HEDGE" "Sends a call again before the first response, and uses the first response that arrives.";
    "HOLD" "Ends `ON SELECT` or `ON DEQUEUE`: the partition waits.";
    "I16" "A signed integer of 16 bits.";
    "I32" "A signed integer of 32 bits.";
    "I64" "A signed integer of 64 bits.";
    "I8" "A signed integer of 8 bits.";
    "ID" "The identity of a message.";
    "IF" "Runs the first block whose condition is true.";
    "IMPORT" "Imports another file; the library is `IMPORT 'library/...'`.";
    "IN" "True for a member of a list, or for an address in a network.";
    "INDEX" "The key is the number of the partition.";
    "INGRESS" "The link queues arriving packets.";
    "INNER" "The payload is a frame of its own, with fields under `inner.`.";
    "INPUT" "The current tuple: `input.user` is its column.";
    "INSERT" "Inserts a row into a table or sink. `TTL ... ON INSERT`: a row's age counts from its insertion.";
    "INT" "A signed integer of 64 bits: I64.";
    "INTERVAL" "A duration: `'50 ms'`.";
    "INTO" "The target of a row or a value.";
    "INVERSE" "`INVERSE OF f`: undoes f, so that stages can be moved across the pair.";
    "IPADDR" "An IPv4 or IPv6 address.";
    "IS" "`IS NULL`, `IS NOT NULL`, `IS DISTINCT FROM`.";
    "JITTER" "The random variation of a wait.";
    "JOIN" "Joins the table row with a key; without a row the guard does not match.";
    "JSON" "A sink writes each row as an object.";
    "KEY" "The columns that identify a row.";
    "KEYS" "The maximum number of distinct keys.";
    "LAST" "`POSITION a LAST`: after all others. `c = LAST a.x | b.y`: the field of the last of these headers.";
    "LATENCY" "The latency above which there are too many calls.";
    "LAYER" "`LENGTH OF LAYER e`: the length of header and payload.";
    "LEAST" "`USING LEAST REQUEST`: the endpoint with the fewest calls in flight.";
    "LEAVE" "Ends `ON EMPTY`: the partition leaves the order.";
    "LEFT" "`LEFT JOIN`: without a row its columns are NULL, and the guard continues.";
    "LENGTH" "The length of the payload in bytes.";
    "LESS" "`TIMEOUT PROPAGATE LESS d`: the margin by which the announced time is shorter.";
    "LET" "Names a value for the rest of the block.";
    "LIFE" "`HALF LIFE d`: a sketch forgets half of what it counted in this time.";
    "LIKE" "True if a text fits a pattern: `%` is any run, `_` one character.";
    "LIMIT" "`SELECT ... LIMIT n` of `weft query`: the maximum number of rows.";
    "LINK" "A rate and a queue for a port's packets, or for the calls of a listener or a cluster.";
    "LISTENER" "Accepts sessions at an address.";
    "LITTLE" "The least significant byte first.";
    "LRU" "A full table evicts the least recently used row.";
    "MAC" "An Ethernet address.";
    "MALFORMED" "`MALFORMED IS PAYLOAD`: a header that violates a rule is treated as bytes.";
    "MANDATORY" "The stage may not be bypassed or fail open.";
    "MARK" "Passes values of a message to the queues: `MARK 3;`, `MARK (remaining = n, slack = '20 ms');`.";
    "MAX" "The maximum number of rows.";
    "MERGE" "Each worker has its own value; `ON EVERY` reads the merged value.";
    "MESSAGE" "Sends an additional message.";
    "METHOD" "The methods of the traffic: `'shop.Cart/*'`.";
    "METRICS" "A sink's rows are shown by the admin endpoint.";
    "MIN" "The minimum.";
    "MIRROR" "Sends a copy of the call to another cluster; its response is ignored.";
    "MOST" "`RELIABILITY AT MOST ONCE`: a call is never retried.";
    "NATIVE" "`AS NATIVE 'name'`: a built-in function.";
    "NEXT" "Ends `ON SELECT`: the partition moves behind those of equal rank.";
    "NOT" "True if the operand is false.";
    "NULL" "No value.";
    "OF" "Whose.";
    "OLDEST" "A full table evicts the least recently written row.";
    "ON" "Begins a handler, or names the layer, edge or port.";
    "ONCE" "`RELIABILITY AT LEAST ONCE` or `AT MOST ONCE`.";
    "OPEN" "`ON OPEN`: once per call, when its headers have arrived.";
    "OR" "True if either is true. An error on one side is absorbed if the other is true.";
    "ORDER" "`ORDER a BEFORE b`: this order is kept. In a filter: calls with equal keys run one after the other.";
    "OTHERWISE" "`BIND lower WHERE e OTHERWISE f`: `f` applies to payloads that no other protocol matches.";
    "OUTLIER" "Stops calls to a failing endpoint for a while.";
    "OUTPUT" "`INSERT INTO output SELECT ...`: forwards the tuple if the query has a row.";
    "OVER" "The transport of calls: `tcp` or `unix`.";
    "OVERFLOW" "The packets that are dropped above the limit.";
    "PACE" "Spreads calls evenly at a rate; early calls wait.";
    "PACKET" "`ON PACKET`: for each frame.";
    "PACKETS" "A limit in packets; `ORDER PACKETS` orders the packets of a single partition.";
    "PARTITION" "A part of a queue: the packets of a flow, a host, a class.";
    "PARTITIONS" "`ORDER PARTITIONS BY rank`: the lowest goes first.";
    "PAYLOAD" "`REPLY PAYLOAD e`: replies with these bytes as the message.";
    "PEEK" "`peek bit(n)`: the first bits after the header.";
    "PER" "`PER WORKER`: each worker has its own table. `PER key`: each key separately.";
    "PERCENT" "A percentage.";
    "PIN" "`PIN STREAM DRAIN d`: streams stay on their version.";
    "POLICY" "Rules that choose a stack; not supported in this version.";
    "POP" "Removes headers from a frame: `POP TO inner.ip`, `POP vlan`, or up to the element's layer.";
    "PORT" "An input and output of frames: a device, a capture, or memory.";
    "PORTS" "`FILLED BY PORTS`: the rows of a table are the ports of the program.";
    "POSITION" "`POSITION a FIRST` or `LAST`.";
    "PRIMARY" "`PRIMARY KEY`: the columns that identify a row.";
    "PRIORITY" "`PRIORITY a > b`: permits an order that the analysis does not allow.";
    "PROBES" "The number of calls that test whether the servers have recovered.";
    "PROPAGATE" "`TIMEOUT PROPAGATE`: announces the remaining time to the server.";
    "PROTO" "A `.proto` file with messages for the program.";
    "PROTOCOL" "A wire format: fields, conditions on them, and the payload.";
    "PURE" "`EFFECT PURE`: the function depends only on its arguments.";
    "PUSH" "Adds headers to a frame, in wire order: `PUSH vlan (id = 7)`.";
    "QUEUE" "In a filter: the maximum number of waiting calls. At top level: a queue program for packets and calls.";
    "RANDOM" "`USING RANDOM`: a random endpoint. `EFFECT RANDOM`: the function uses random numbers.";
    "RATE" "The rate of calls per key; others wait or are rejected.";
    "RATIO" "`RATIO p PERCENT OF n IN d`: the share of failed calls.";
    "REDIRECT" "Sends the call to another cluster or endpoint.";
    "REJECT" "When the table is full, a new row is an error.";
    "RELIABILITY" "How often a call can reach the server: `AT MOST ONCE` or `AT LEAST ONCE`.";
    "REPEAT" "A repeated part of a header.";
    "REPLACE" "`CREATE OR REPLACE`: replaces an earlier object; `INSERT OR REPLACE` replaces a row.";
    "REPLY" "Answers the call without sending it to the server.";
    "REQUEST" "`ON REQUEST`: for each message of the client.";
    "RESERVED" "Written as zero; any value is accepted when read.";
    "RESET" "Sets a merged variable back to its initial value.";
    "RESPONSE" "`ON RESPONSE`: for each message of the server.";
    "RETRY" "Retries failed calls.";
    "RETURNING" "Columns of the row after the change, and the targets for their values.";
    "RETURNS" "Columns of the response.";
    "ROBIN" "`USING ROUND ROBIN`: one endpoint after the other.";
    "ROTATE" "Ends `ON DEQUEUE`: the packet is sent, and its partition moves behind those of equal rank.";
    "ROUND" "`USING ROUND ROBIN`: one endpoint after the other.";
    "ROUTE" "Sends calls of a listener to a cluster.";
    "ROWS" "A row of a table.";
    "SCAN" "Reads the rows of a table one by one, up to a limit.";
    "SECOND" "`PER SECOND`";
    "SELECT" "A guard: forwards the tuple if it matches, with the columns set here.";
    "SEND" "Ends `ON DEQUEUE`: the packet is sent.";
    "SERVE" "Ends `ON SELECT`: the partition is served.";
    "SERVER" "`AT SERVER`: at the server side.";
    "SESSION" "`SESSION KEY (a, b)`: the fields that identify a session.";
    "SET" "Sets a column, a header, a trailer, a variable or a CALL column.";
    "SIGNAL" "Sends a signal to other elements.";
    "SINK" "An output for rows: logs and metrics.";
    "SIZE" "A number of bytes: `'36 KB'`.";
    "SKETCH" "Counts per key in bounded memory, with a stated error.";
    "STACK" "A protocol stack over a path; not supported in this version.";
    "STAGE" "`FILLED BY STAGE e`: the table of the same name in another stage of the chain.";
    "STATUS" "A gRPC status: `UNAVAILABLE`.";
    "STAY" "Ends `ON EMPTY`: the partition stays in the order.";
    "STDOUT" "A sink's rows go to standard output.";
    "STEER" "Sends the tuple over an edge of the element.";
    "STREAM" "`PIN STREAM DRAIN d`: streams stay on their version.";
    "SUM" "The sum.";
    "SWITCH" "The kind of payload, selected by a number in the header.";
    "TABLE" "State: rows with a key, typed columns and a row limit.";
    "TAIL" "The packet that arrived last.";
    "TEXT" "UTF-8 text; with a length in bytes in stored data: `TEXT(64)`.";
    "THEN" "The statements for a true condition.";
    "TIMEOUT" "In a filter: ends a call that takes too long. `ON TIMEOUT OF t`: the row `OLD` has expired.";
    "TIMESTAMP" "A point in time.";
    "TO" "The destination.";
    "TOLERANCE" "The accepted ratio of the latency to its minimum.";
    "TOP" "A sketch keeps the keys with the highest counts.";
    "TOTAL" "`TIMEOUT TOTAL d`: for the call including all tries.";
    "TRAILER" "`trailer['k']`: a trailer of the response.";
    "TRUE" "True.";
    "TRY" "`TIMEOUT TRY d`: for each try of a call. `PER TRY`: an element runs for each try.";
    "TTL" "The lifetime of a row after its last write; with `ON ACCESS` also after reads, with `ON INSERT` \
           after its insertion.";
    "TYPE" "The messages of a `.proto` file.";
    "U1" "A bit.";
    "U16" "An unsigned integer of 16 bits.";
    "U32" "An unsigned integer of 32 bits.";
    "U64" "An unsigned integer of 64 bits.";
    "U8" "An unsigned integer of 8 bits.";
    "UNTIL" "A repetition ends after the first round for which this is true.";
    "UP" "`UP TO n`: the maximum.";
    "UPDATE" "Updates the row with a key; `ELSE` runs if there is none.";
    "UPSERT" "Updates the row with a key, or inserts it.";
    "USING" "The join columns, the balancing policy, or the nested queue.";
    "VALUES" "The values of rows.";
    "VAR" "One value for the node.";
    "WAIT" "The maximum wait of a call.";
    "WAYS" "The set size: a key can be in one of this many partitions.";
    "WEIGHT" "`ON PORT a WEIGHT 3, b`, `TO 'a:1' WEIGHT 3, ...`: the share of a port of a group, or of an endpoint.";
    "WHEN" "A condition.";
    "WHERE" "The condition on rows or tuples; NULL does not satisfy it.";
    "WINDOW" "A sketch counts the events in this time window.";
    "WITH" "Options; headers and trailers of a response.";
    "WORKER" "`PER WORKER`: each worker has its own table.";
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
