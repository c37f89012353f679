" Vim syntax file for Weft. Made by `cargo xtask book` from the tables of the language: do not edit it.
if exists('b:current_syntax')
  finish
endif

syn case ignore
syn keyword weftReserved ABORT AND AS BETWEEN CASE CREATE DELETE DO DROP ELSE
syn keyword weftReserved ELSIF END EXISTS FORWARD FROM IF IN INSERT INTO IS
syn keyword weftReserved JOIN LET LIKE NOT ON OR RETURNING SELECT SET THEN
syn keyword weftReserved UPDATE UPSERT USING VALUES WHEN WHERE
syn keyword weftConstant FALSE NULL TRUE

syn case match
syn keyword weftKeyword ACCEPT ACCESS ACTIVATE ADD AFTER AIMD ALL ALTER ANSWERS ANY
syn keyword weftKeyword ASC AT BACKOFF BEFORE BIND BIT BITS BUDGET BURST BY
syn keyword weftKeyword BYPASS CALL CALLS CAST CHAIN CHECK CIRCUIT CLASS CLIENT CLOCK
syn keyword weftKeyword CLOSE CLUSTER COLUMNS COMPUTED CONCURRENCY CONGESTION CONSTANT CONTROLLER COST COUNT
syn keyword weftKeyword CUT DEFAULT DELAY DEQUEUE DESC DESCRIPTORS DISTINCT DRAIN EACH EDGE
syn keyword weftKeyword EFFECT EJECT ELEMENT EMPTY ENCAP ENQUEUE EQUIVALENCE ERROR ERRORS EVERY
syn keyword weftKeyword EVICT EXPONENTIAL FAIL FAILOVER FAILURE FILE FILLED FILTER FIRST FLIGHT
syn keyword weftKeyword FOR FORMAT FRAGMENT FUNCTION GRADIENT GROUP HALF HASH HEAD HEADER
syn keyword weftKeyword HEDGE HOLD ID IMPORT INDEX INGRESS INNER INPUT INVERSE JITTER
syn keyword weftKeyword JSON KEY KEYS LAST LATENCY LAYER LEAST LEAVE LEFT LENGTH
syn keyword weftKeyword LESS LIFE LIMIT LINK LISTENER LITTLE LRU MALFORMED MANDATORY MARK
syn keyword weftKeyword MAX MERGE MESSAGE METHOD METRICS MIN MIRROR MOST NATIVE NEXT
syn keyword weftKeyword OF OLDEST ONCE OPEN ORDER OTHERWISE OUTLIER OUTPUT OVER OVERFLOW
syn keyword weftKeyword PACE PACKET PACKETS PARTITION PARTITIONS PAYLOAD PEEK PER PERCENT PIN
syn keyword weftKeyword POLICY POP PORT PORTS POSITION PRIMARY PRIORITY PROBES PROPAGATE PROTO
syn keyword weftKeyword PROTOCOL PURE PUSH QUEUE RANDOM RATE RATIO REDIRECT REJECT RELIABILITY
syn keyword weftKeyword REPEAT REPLACE REPLY REQUEST RESERVED RESET RESPONSE RETRY RETURNS ROBIN
syn keyword weftKeyword ROTATE ROUND ROUTE ROWS SCAN SECOND SEND SERVE SERVER SESSION
syn keyword weftKeyword SIGNAL SINK SKETCH STACK STAGE STAY STDOUT STEER STREAM SUM
syn keyword weftKeyword SWITCH TABLE TAIL TIMEOUT TO TOLERANCE TOP TOTAL TRAILER TRY
syn keyword weftKeyword TTL TYPE UNTIL UP VAR WAIT WAYS WEIGHT WINDOW WITH
syn keyword weftKeyword WORKER
syn keyword weftType BOOL BYTES CIDR ENDPOINT F64 I16 I32 I64 I8 INT
syn keyword weftType INTERVAL IPADDR MAC SIZE STATUS TEXT TIMESTAMP U1 U16 U32
syn keyword weftType U64 U8
syn keyword weftStatus OK CANCELLED UNKNOWN INVALID_ARGUMENT DEADLINE_EXCEEDED NOT_FOUND ALREADY_EXISTS PERMISSION_DENIED RESOURCE_EXHAUSTED FAILED_PRECONDITION
syn keyword weftStatus ABORTED OUT_OF_RANGE UNIMPLEMENTED INTERNAL UNAVAILABLE DATA_LOSS UNAUTHENTICATED

syn match weftFunction '\v<(abs|argmax|argmin|avg|ceil|coalesce|concat|contains|count|counted|ends_with|float|floor|greatest|hash|hash_slot|in_prefix|int|interval|is_group|least|length|lower|max|micros|millis|min|now|nullif|prefix_bits|rand|round|same_family|seconds|sqrt|starts_with|substr|sum|text|uint|upper|ABS|ARGMAX|ARGMIN|AVG|CEIL|COALESCE|CONCAT|CONTAINS|COUNTED|ENDS_WITH|FLOAT|FLOOR|GREATEST|HASH_SLOT|IN_PREFIX|IS_GROUP|LOWER|MICROS|MILLIS|NOW|NULLIF|PREFIX_BITS|RAND|SAME_FAMILY|SECONDS|SQRT|STARTS_WITH|SUBSTR|UINT|UPPER)>\ze\s*\('
syn match weftMember '\v\.\s*\h\w*'
syn match weftNumber '\v<(0x[0-9A-Fa-f_]+|\d[0-9_]*(\.\d[0-9_]*)?([eE][+-]?\d+)?)>'
syn match weftOperator '->\|:=\|<>\|!=\|<=\|>=\|||'
syn region weftString start=/'/ skip=/''/ end=/'/ oneline
syn region weftQuoted start=/"/ skip=/""/ end=/"/ oneline
syn match weftComment '--.*$' contains=@Spell
syn region weftComment start='/\*' end='\*/' contains=@Spell

hi def link weftReserved Statement
hi def link weftKeyword Keyword
hi def link weftConstant Constant
hi def link weftType Type
hi def link weftStatus Constant
hi def link weftFunction Function
hi def link weftNumber Number
hi def link weftOperator Operator
hi def link weftString String
hi def link weftQuoted Identifier
hi def link weftComment Comment

let b:current_syntax = 'weft'
