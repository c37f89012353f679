//! The table of diagnostic codes. A code never changes its meaning and is never used again for another.

use super::Code;

macro_rules! codes {
    ($($name:ident = $code:literal, $title:literal;)*) => {
        $(#[doc = concat!("`", $code, "`: ", $title, ".")] pub const $name: Code = Code($code);)*

        /// Every code with its one-line title, in order.
        pub const ALL: &[(Code, &str)] = &[$(($name, $title)),*];
    };
}

codes! {
    // W00xx: what is read at all.
    SOURCE_TOO_LARGE = "W0001", "a source file is over the size limit";
    TOO_MANY_FILES = "W0002", "a program has too many files";
    NESTING_TOO_DEEP = "W0003", "the text nests deeper than the limit";
    EXPR_TOO_LARGE = "W0004", "an expression is larger than the limit";
    TOO_MANY_DIAGNOSTICS = "W0005", "more faults than are shown";

    // W01xx: syntax.
    BAD_CHARACTER = "W0101", "a character that has no meaning here";
    UNTERMINATED_STRING = "W0102", "a string without its closing quote";
    UNTERMINATED_COMMENT = "W0103", "a comment without its end";
    BAD_NUMBER = "W0104", "a number that cannot be read";
    UNEXPECTED = "W0105", "something else was expected here";
    UNKNOWN_KIND = "W0106", "there is no such kind of thing to create";
    KIND_NOT_IN_VERSION = "W0107", "a kind of the design that this version does not have";
    RESERVED_WORD = "W0108", "a keyword where a name must be";
    UNKNOWN_STATEMENT = "W0109", "there is no such statement";
    UNCLOSED_BLOCK = "W0110", "a block without its END";
    CHAINED_COMPARISON = "W0111", "comparisons do not chain";
    DECL_AFTER_HANDLER = "W0112", "a declaration after the first handler";
    MISSING_CLAUSE = "W0113", "a clause that must be written is missing";
    REPEATED_CLAUSE = "W0114", "a clause is written twice";
    BAD_TYPE_LENGTH = "W0115", "a length that this type does not take";

    // W02xx: files, names and types.
    IMPORT_FAILED = "W0201", "an imported file cannot be read";
    IMPORT_CYCLE = "W0202", "files that import each other";
    PROTO_FAILED = "W0203", "a .proto file cannot be read";
    DUPLICATE_NAME = "W0204", "two things have the same name";
    UNKNOWN_NAME = "W0205", "there is nothing of this name";
    UNKNOWN_TYPE = "W0206", "there is no such type";
    UNKNOWN_TABLE = "W0207", "there is no such table";
    UNKNOWN_COLUMN = "W0208", "a table or sink has no such column";
    UNKNOWN_FUNCTION = "W0209", "there is no such function";
    BAD_ARGUMENTS = "W0210", "arguments that the function does not take";
    AMBIGUOUS_NAME = "W0211", "a name that could mean two things";
    NAME_NOT_HERE = "W0212", "a name that has no value in this handler";
    NO_SUCH_FIELD = "W0213", "a message has no such field";
    TYPE_MISMATCH = "W0214", "a value of another type is needed";
    MAY_BE_NULL = "W0215", "a value that may be NULL where one is needed";
    BAD_LITERAL = "W0216", "a literal that its type cannot hold";
    FIELD_NOT_BINDABLE = "W0217", "a field that this column cannot stand for";
    NOT_CONSTANT = "W0218", "a value that is not known before the program runs";
    NEVER_TRUE = "W0219", "a comparison that is never true";
    UNKNOWN_OBJECT = "W0220", "there is no element, listener, cluster or instance of this name";
    UNUSED_NAME = "W0221", "a name that nothing reads";
    UNKNOWN_NATIVE = "W0222", "there is no native function of this name";
    NATIVE_MISMATCH = "W0223", "a declaration that the native function does not fit";
    BAD_PATTERN = "W0224", "a pattern that cannot be read";
    KEY_NOT_NAMED = "W0225", "a function that needs a key, and is not told where to find it";
    NOT_A_FUNCTION = "W0226", "a function where a value is needed, or a value where a function is";
    FUNCTION_OPTION = "W0227", "an option with a value that it does not take";
    HOST_BITS = "W0228", "a network that is written as an address in it";
    PROTO_FAULT = "W0229", "a fault in the text of a .proto file";
    DESCRIPTORS_FAILED = "W0230", "a descriptor set cannot be read";
    LIST_NOT_HERE = "W0232", "a list is read where no message is known";
    NOT_A_LIST = "W0233", "a list where one value is needed, or one value where a list is";
    LIST_IN_LIST = "W0234", "a list is looked at within another";
    BINDING_DRAWS = "W0235", "a binding that would be another each time";

    // W03xx: meaning.
    NO_ANSWER = "W0301", "a request can end without an answer";
    LAYER_NOT_IN_VERSION = "W0302", "a layer that this version does not have";
    NOT_IN_VERSION = "W0303", "something that this layer or version does not have";
    VERDICT_NOT_HERE = "W0304", "a verdict that this handler cannot give";
    WRITE_NOT_HERE = "W0305", "something that cannot be changed here";
    KEY_NOT_COVERED = "W0306", "a look at a table that does not fix its key";
    BAD_KEY = "W0307", "a table without a usable primary key";
    NO_ROWS_MAX = "W0308", "a table without a bound";
    NO_EVICT = "W0309", "a table that fills up and does not say what then";
    TABLE_READ_ONLY = "W0310", "a handler writes a table that the controller fills";
    LENGTH_NEEDED = "W0311", "text without a length where memory is fixed, or with one where it is not";
    MERGE_MISUSE = "W0312", "a merged value that is used as an ordinary one, or the other way round";
    PER_WORKER_IN_EVERY = "W0313", "a handler of the node uses a table of a worker";
    OVER_LIMIT = "W0314", "a number outside its limits";
    NO_VALUE = "W0315", "a new row lacks a value";
    KEY_CHANGED = "W0316", "a key column is changed";
    UNREACHABLE = "W0317", "a statement that is never reached";
    REPEATED_HANDLER = "W0318", "two handlers for one event";
    OPTION_CONFLICT = "W0319", "options that exclude each other";
    ACTION_NOT_HERE = "W0320", "an action that this handler cannot do";
    SCANNED_TABLE_GROWS = "W0321", "a table gets rows while it is scanned";
    OVERCLAIM = "W0322", "a declaration that claims more than its native function gives";
    NOT_A_MATCH = "W0323", "a condition of JOIN FIRST that rules cannot be compiled from";
    NOT_MATCHABLE = "W0324", "JOIN FIRST over a table that the controller does not fill";
    NEVER_EXPIRES = "W0325", "a handler for rows that never leave their table so";
    SINK_MISMATCH = "W0326", "a sink into a table that cannot take its rows";
    NO_SUCH_STAGE = "W0327", "a table of another stage that the chain does not have";
    NOT_DECLARED = "W0333", "what no protocol of the program says of a frame";

    // W04xx: chains, routes, listeners, clusters and rows.
    NOT_IN_NETWORK = "W0401", "a chain or route names a listener or cluster that does not exist";
    OVERLAP = "W0402", "two rules for the same traffic";
    NO_METHOD = "W0403", "a METHOD that selects nothing";
    MISSING_PARAM = "W0404", "a parameter without a value";
    UNKNOWN_PARAM = "W0405", "an element has no such parameter or column";
    REDIRECT_WOULD_DEADLOCK = "W0406", "routing by body on a method that streams both ways";
    MANDATORY_MAY_FAIL = "W0407", "a mandatory stage that could be passed by";
    ORDER_BROKEN = "W0408", "stages that contradict an option of the chain";
    BAD_ADDRESS = "W0409", "an address that cannot be bound or reached";
    UNKNOWN_OPTION = "W0410", "there is no such option";
    NOT_FILLABLE = "W0411", "rows for a table that takes none from the program";
    DUPLICATE_KEY = "W0412", "two rows with the same key";
    CHAIN_TOO_LARGE = "W0413", "a chain over its limits";
    TOO_MANY_ROWS = "W0414", "more rows than the table takes";
    MIRROR_OF_STREAM = "W0415", "a copy of calls whose requests are streams";
    LOOSE_EDGE = "W0418", "an edge of an element from which nothing leads on";
    FILTER_EMPTY = "W0420", "a filter without a policy";
    POLICY_REPEATED = "W0421", "two policies of one kind in a filter";
    STATUS_ONLY = "W0422", "a condition of a filter that reads more than how a call ended";
    POLICY_CONTRADICTS = "W0423", "numbers of a filter that contradict each other";
    POLICY_WITHOUT_EFFECT = "W0424", "a policy that no call can meet, or that takes a success for a failure";
    FILTER_AND_STREAM = "W0425", "a filter that takes whole calls, and methods that stream";
    RETRY_AT_MOST_ONCE = "W0426", "calls that are sent at most once, and a filter that sends them again";
    FILTER_IN_GROUP = "W0427", "a filter among stages without an order";
    PER_TRY_ALONE = "W0428", "PER TRY where nothing is tried again";
    NO_TRANSPORT = "W0429", "a transport that the cluster does not have";
    NOT_REPEATABLE = "W0430", "an element that must not run twice behind a filter that sends calls again";
    OVER_BUDGET = "W0431", "a handler that may take longer than calls can wait";
    CHECK_BROKEN = "W0432", "a row, or parameters, of which a CHECK does not hold";
    ONEOF_DIFFERS = "W0433", "fields that displace each other in some messages of a chain, and not in others";

    // W05xx: programs that are right, and cannot be run here and now.
    STATE_MISMATCH = "W0501", "state of the running program that the new one cannot take over";
    BACKEND_UNSUPPORTED = "W0502", "something that the back end cannot express";
    ADDRESS_UNRESOLVED = "W0503", "a name without an address";
    KEY_UNUSABLE = "W0504", "a key that is not there, or that its function cannot use";
    FUNCTION_UNPREPARED = "W0505", "a function that cannot be made ready";
    INTERNAL = "W0506", "a fault of Weft itself";
    OVER_MEMORY = "W0507", "a program that may take more memory than there is for it";

    // W06xx: wire formats, ports and frames.
    WIRE_ALIGNMENT = "W0601", "bits that fill no whole bytes";
    WIRE_WIDTH = "W0602", "a width that no field has";
    WIRE_UNBOUNDED = "W0603", "a length or a repetition without a bound";
    WIRE_HEADER_TOO_LONG = "W0604", "a header over its limit";
    WIRE_NOT_SEEN = "W0605", "an expression of a header that looks at what is not there";
    WIRE_OVERLAP = "W0606", "two protocols for one payload";
    WIRE_CYCLE = "W0607", "a payload that leads back into a protocol that carries it";
    UNKNOWN_PROTOCOL = "W0608", "there is no protocol of this name";
    WIRE_RULE = "W0609", "a rule that this field cannot have";
    UNION_COLUMN = "W0610", "a column that the members of a union do not share";
    FIELD_READ_ONLY = "W0611", "a field of a header that programs do not set";
    HEADER_CHANGE_MISMATCH = "W0612", "headers that cannot be put on or taken off like that";
    FRAME_CHANGED = "W0613", "a field of a frame that is looked at behind PUSH, POP or CUT";
    WIRE_UNREACHABLE = "W0614", "a protocol that is in no frame";
    CHAIN_UNREACHABLE = "W0615", "a chain that no frame gets to";
    DEVICE_SHARED = "W0616", "two ports on one device";
    QUEUE_REACTIVATION = "W0617", "a queue that takes partitions for new that it has just emptied";

    // W07xx: queues and links.
    QUEUE_NO_VERDICT = "W0701", "a path through a handler of a queue that ends in no verdict";
    QUEUE_NO_LIMIT = "W0702", "a queue without a limit";
    QUEUE_NOT_SEEN = "W0703", "something that a queue cannot see";
    QUEUE_RANK = "W0704", "a rank that cannot be ordered by";
    QUEUE_SHAPE = "W0705", "parts of a queue that do not fit together";
    QUEUE_USE = "W0706", "a queue or a link that is not used as it is declared";
    QUEUE_RANK_RANGE = "W0707", "a rank that may not fit the BITS of its order";
    QUEUE_CLOCK = "W0708", "a handler by the clock that takes more than a core has";
    QUEUE_NO_ROOM = "W0709", "a limit in bytes that no full frame fits in";
    QUEUE_NO_WAIT = "W0710", "a key or rank by how long packets have waited, before they have";
    QUEUE_NEVER_RELEASES = "W0711", "a handler of a queue that never lets a packet go";
}

/// The title of a code, if it is in the table.
pub fn title(code: Code) -> Option<&'static str> {
    ALL.iter().find(|(known, _)| *known == code).map(|(_, title)| *title)
}
