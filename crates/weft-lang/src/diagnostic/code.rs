//! The table of diagnostic codes. A code never changes its meaning and is never reused.

use super::Code;

macro_rules! codes {
    ($($name:ident = $code:literal, $title:literal;)*) => {
        $(#[doc = concat!("`", $code, "`: ", $title, ".")] pub const $name: Code = Code($code);)*

        /// Every code with its one-line title, in order.
        pub const ALL: &[(Code, &str)] = &[$(($name, $title)),*];
    };
}

codes! {
    // W00xx: limits of the input.
    SOURCE_TOO_LARGE = "W0001", "a source file is over the size limit";
    TOO_MANY_FILES = "W0002", "a program has too many files";
    NESTING_TOO_DEEP = "W0003", "the text nests deeper than the limit";
    EXPR_TOO_LARGE = "W0004", "an expression is larger than the limit";
    TOO_MANY_DIAGNOSTICS = "W0005", "more errors than are shown";

    // W01xx: syntax.
    BAD_CHARACTER = "W0101", "a character that has no meaning here";
    UNTERMINATED_STRING = "W0102", "a string has no closing quote";
    UNTERMINATED_COMMENT = "W0103", "a comment has no end";
    BAD_NUMBER = "W0104", "a number that cannot be read";
    UNEXPECTED = "W0105", "unexpected token";
    UNKNOWN_KIND = "W0106", "unknown kind of object to create";
    KIND_NOT_IN_VERSION = "W0107", "a kind of object that this version does not support";
    RESERVED_WORD = "W0108", "a keyword is used as a name";
    UNKNOWN_STATEMENT = "W0109", "unknown statement";
    UNCLOSED_BLOCK = "W0110", "a block has no END";
    CHAINED_COMPARISON = "W0111", "comparisons do not chain";
    DECL_AFTER_HANDLER = "W0112", "a declaration after the first handler";
    MISSING_CLAUSE = "W0113", "a required clause is missing";
    REPEATED_CLAUSE = "W0114", "a clause is repeated";
    BAD_TYPE_LENGTH = "W0115", "a length that this type does not allow";

    // W02xx: files, names and types.
    IMPORT_FAILED = "W0201", "an imported file cannot be read";
    IMPORT_CYCLE = "W0202", "files import each other in a cycle";
    PROTO_FAILED = "W0203", "a .proto file cannot be read";
    DUPLICATE_NAME = "W0204", "a name is used twice";
    UNKNOWN_NAME = "W0205", "unknown name";
    UNKNOWN_TYPE = "W0206", "unknown type";
    UNKNOWN_TABLE = "W0207", "unknown table";
    UNKNOWN_COLUMN = "W0208", "unknown column of a table or sink";
    UNKNOWN_FUNCTION = "W0209", "unknown function";
    BAD_ARGUMENTS = "W0210", "wrong arguments of a function";
    AMBIGUOUS_NAME = "W0211", "an ambiguous name";
    NAME_NOT_HERE = "W0212", "a name is not available in this handler";
    NO_SUCH_FIELD = "W0213", "unknown field of a message";
    TYPE_MISMATCH = "W0214", "a type mismatch";
    MAY_BE_NULL = "W0215", "a value may be NULL where NULL is not allowed";
    BAD_LITERAL = "W0216", "a literal does not fit its type";
    FIELD_NOT_BINDABLE = "W0217", "a column cannot be bound to this field";
    NOT_CONSTANT = "W0218", "a constant is required";
    NEVER_TRUE = "W0219", "a comparison is never true";
    UNKNOWN_OBJECT = "W0220", "unknown element, listener, cluster or instance";
    UNUSED_NAME = "W0221", "an unused name";
    UNKNOWN_NATIVE = "W0222", "unknown native function";
    NATIVE_MISMATCH = "W0223", "a declaration does not match the native function";
    BAD_PATTERN = "W0224", "an invalid pattern";
    KEY_NOT_NAMED = "W0225", "a function needs a key, but no key source is given";
    NOT_A_FUNCTION = "W0226", "a function is used as a value, or a value as a function";
    FUNCTION_OPTION = "W0227", "an option has an invalid value";
    HOST_BITS = "W0228", "a network has host bits set";
    PROTO_FAULT = "W0229", "an error in a .proto file";
    DESCRIPTORS_FAILED = "W0230", "a descriptor set cannot be read";
    LIST_NOT_HERE = "W0232", "a list is read where no message is available";
    NOT_A_LIST = "W0233", "a list is used as a single value, or a single value as a list";
    LIST_IN_LIST = "W0234", "a list expression cannot be nested in another";
    BINDING_DRAWS = "W0235", "a binding is not deterministic";

    // W03xx: semantics.
    NO_ANSWER = "W0301", "a request can end without an answer";
    LAYER_NOT_IN_VERSION = "W0302", "a layer that this version does not support";
    NOT_IN_VERSION = "W0303", "not supported on this layer or in this version";
    VERDICT_NOT_HERE = "W0304", "a verdict is not allowed in this handler";
    WRITE_NOT_HERE = "W0305", "an assignment is not allowed here";
    KEY_NOT_COVERED = "W0306", "a lookup does not determine the table's key";
    BAD_KEY = "W0307", "a table has no usable primary key";
    NO_ROWS_MAX = "W0308", "a table has no row limit";
    NO_EVICT = "W0309", "a table has no eviction policy";
    TABLE_READ_ONLY = "W0310", "a handler writes a table that the controller fills";
    LENGTH_NEEDED = "W0311", "stored text needs a length; message text must not have one";
    MERGE_MISUSE = "W0312", "a merged value is used as an ordinary one, or vice versa";
    PER_WORKER_IN_EVERY = "W0313", "a per-node handler uses a per-worker table";
    OVER_LIMIT = "W0314", "a number is out of range";
    NO_VALUE = "W0315", "a new row lacks a value";
    KEY_CHANGED = "W0316", "a key column is changed";
    UNREACHABLE = "W0317", "an unreachable statement";
    REPEATED_HANDLER = "W0318", "two handlers for one event";
    OPTION_CONFLICT = "W0319", "options contradict each other";
    ACTION_NOT_HERE = "W0320", "an action is not allowed in this handler";
    SCANNED_TABLE_GROWS = "W0321", "rows are inserted into a table while it is scanned";
    OVERCLAIM = "W0322", "a declaration promises more than its native function";
    NOT_A_MATCH = "W0323", "a condition of JOIN FIRST cannot be compiled to rules";
    NOT_MATCHABLE = "W0324", "JOIN FIRST uses a table that the controller does not fill";
    NEVER_EXPIRES = "W0325", "a handler can never run, because rows never leave the table";
    SINK_MISMATCH = "W0326", "a sink does not match its table";
    NO_SUCH_STAGE = "W0327", "a table belongs to a stage that is not in the chain";
    NOT_DECLARED = "W0333", "a property that no protocol of the program declares";

    // W04xx: chains, routes, listeners, clusters and rows.
    NOT_IN_NETWORK = "W0401", "a chain or route names an unknown listener or cluster";
    OVERLAP = "W0402", "two rules match the same traffic";
    NO_METHOD = "W0403", "a METHOD matches nothing";
    MISSING_PARAM = "W0404", "a parameter has no value";
    UNKNOWN_PARAM = "W0405", "unknown parameter or column of an element";
    REDIRECT_WOULD_DEADLOCK = "W0406", "redirecting by message content on a bidirectional stream";
    MANDATORY_MAY_FAIL = "W0407", "a mandatory stage could be bypassed";
    ORDER_BROKEN = "W0408", "the order of stages contradicts an option of the chain";
    BAD_ADDRESS = "W0409", "an invalid address";
    UNKNOWN_OPTION = "W0410", "unknown option";
    NOT_FILLABLE = "W0411", "rows are inserted into a table that is filled by other means";
    DUPLICATE_KEY = "W0412", "two rows have the same key";
    CHAIN_TOO_LARGE = "W0413", "a chain exceeds its limits";
    TOO_MANY_ROWS = "W0414", "more rows than the table can hold";
    MIRROR_OF_STREAM = "W0415", "a mirror of calls with streaming requests";
    LOOSE_EDGE = "W0418", "an edge of an element is not connected";
    FILTER_EMPTY = "W0420", "a filter has no policy";
    POLICY_REPEATED = "W0421", "a filter has two policies of one kind";
    STATUS_ONLY = "W0422", "a filter's condition reads more than the call's status";
    POLICY_CONTRADICTS = "W0423", "numbers of a filter contradict each other";
    POLICY_WITHOUT_EFFECT = "W0424", "a policy never applies, or treats success as failure";
    FILTER_AND_STREAM = "W0425", "a filter needs whole calls, but a method streams";
    RETRY_AT_MOST_ONCE = "W0426", "a filter retries calls that must be sent at most once";
    FILTER_IN_GROUP = "W0427", "a filter is among unordered stages";
    PER_TRY_ALONE = "W0428", "PER TRY without a filter that retries";
    NO_TRANSPORT = "W0429", "the cluster has no endpoint with this transport";
    NOT_REPEATABLE = "W0430", "an element behind a retrying filter must not run twice";
    OVER_BUDGET = "W0431", "a handler may exceed its time budget";
    CHECK_BROKEN = "W0432", "a row or parameters do not satisfy a CHECK";
    ONEOF_DIFFERS = "W0433", "fields are in a oneof in some messages of a chain, but not in others";

    // W05xx: valid programs that cannot run in this environment.
    STATE_MISMATCH = "W0501", "the new program cannot take over state of the running one";
    BACKEND_UNSUPPORTED = "W0502", "not supported by the back end";
    ADDRESS_UNRESOLVED = "W0503", "a name cannot be resolved";
    KEY_UNUSABLE = "W0504", "a key is missing or unusable";
    FUNCTION_UNPREPARED = "W0505", "a function cannot be initialized";
    INTERNAL = "W0506", "an internal error of Weft";
    OVER_MEMORY = "W0507", "a program may need more memory than available";

    // W06xx: wire formats, ports and frames.
    WIRE_ALIGNMENT = "W0601", "bits do not fill whole bytes";
    WIRE_WIDTH = "W0602", "an invalid field width";
    WIRE_UNBOUNDED = "W0603", "a length or a repetition has no maximum";
    WIRE_HEADER_TOO_LONG = "W0604", "a header exceeds its size limit";
    WIRE_NOT_SEEN = "W0605", "an expression reads a value that is not available there";
    WIRE_OVERLAP = "W0606", "two protocols match the same payload";
    WIRE_CYCLE = "W0607", "a payload leads back to a protocol that carries it";
    UNKNOWN_PROTOCOL = "W0608", "unknown protocol";
    WIRE_RULE = "W0609", "a rule is not allowed for this field";
    UNION_COLUMN = "W0610", "a column is not common to the members of a union";
    FIELD_READ_ONLY = "W0611", "a read-only header field";
    HEADER_CHANGE_MISMATCH = "W0612", "an invalid PUSH, POP or CUT";
    FRAME_CHANGED = "W0613", "a field of a frame is read after PUSH, POP or CUT";
    WIRE_UNREACHABLE = "W0614", "a protocol that no frame contains";
    CHAIN_UNREACHABLE = "W0615", "a chain that receives no frames";
    DEVICE_SHARED = "W0616", "two ports on one device";
    QUEUE_REACTIVATION = "W0617", "a queue ranks just-emptied partitions as new";

    // W07xx: queues and links.
    QUEUE_NO_VERDICT = "W0701", "a path through a queue handler ends without a verdict";
    QUEUE_NO_LIMIT = "W0702", "a queue has no limit";
    QUEUE_NOT_SEEN = "W0703", "not available in a queue";
    QUEUE_RANK = "W0704", "an invalid rank";
    QUEUE_SHAPE = "W0705", "parts of a queue contradict each other";
    QUEUE_USE = "W0706", "a queue or link does not match its declaration";
    QUEUE_RANK_RANGE = "W0707", "a rank may not fit its BITS";
    QUEUE_CLOCK = "W0708", "an ON EVERY handler needs more than one core";
    QUEUE_NO_ROOM = "W0709", "a byte limit is smaller than a full frame";
    QUEUE_NO_WAIT = "W0710", "a key or rank by waiting time, evaluated on arrival";
    QUEUE_NEVER_RELEASES = "W0711", "a queue handler never releases a packet";
}

/// The title of a code, if it is in the table.
pub fn title(code: Code) -> Option<&'static str> {
    ALL.iter().find(|(known, _)| *known == code).map(|(_, title)| *title)
}
