use super::*;
use crate::ast::{Decl, Expr, ExprKind, StmtKind};

fn parse_text(text: &str) -> (SourceMap, Ast, Vec<Diagnostic>) {
    let mut sources = SourceMap::new();
    let file = sources.add("t.weft", text).unwrap();
    let (ast, diagnostics) = parse(&sources, file);
    (sources, ast, diagnostics)
}

/// Parses `text` and compares its diagnostics, one a line: `line:column code message`.
#[track_caller]
fn check(text: &str, expect: &[&str]) -> Ast {
    let (sources, ast, diagnostics) = parse_text(text);
    let reported: Vec<String> = diagnostics
        .iter()
        .map(|diagnostic| {
            let span = diagnostic.span().unwrap();
            let at = sources.file(span.file).position(span.start);
            format!("{}:{} {} {}", at.line, at.column, diagnostic.code.0, diagnostic.message)
        })
        .collect();
    assert_eq!(reported, expect);
    ast
}

/// Parses one statement in a handler.
#[track_caller]
fn check_stmt(stmt: &str, expect: &[&str]) {
    check(&format!("CREATE ELEMENT e ON rpc AS ON REQUEST\n{stmt}\nEND;"), expect);
}

/// Parses an expression and compares its shape: every operation in parentheses.
#[track_caller]
fn check_expr(text: &str, expect: &str) {
    let ast = check(&format!("CREATE ELEMENT e ON rpc AS ON REQUEST SET x = {text}; END;"), &[]);
    let Item::Element(element) = &ast.items[0] else { panic!("an element") };
    let StmtKind::Set { value, .. } = &element.handlers[0].body[0].kind else { panic!("a SET") };
    assert_eq!(shape(value), expect);
}

fn shape(expr: &Expr) -> String {
    let list = |exprs: &[Expr]| exprs.iter().map(shape).collect::<Vec<_>>().join(" ");
    let not = |negated: &bool| if *negated { "not-" } else { "" };
    match &expr.kind {
        ExprKind::Int(value) => value.to_string(),
        ExprKind::Float(value) => format!("{value:?}"),
        ExprKind::Str(value) => format!("{value:?}"),
        ExprKind::Bool(value) => value.to_string(),
        ExprKind::Null => "null".to_owned(),
        ExprKind::Path(path) => path.to_dotted(),
        ExprKind::Header(key) => format!("header[{}]", shape(key)),
        ExprKind::Trailer(key) => format!("trailer[{}]", shape(key)),
        ExprKind::Call { function, args, star } => {
            format!("{}({}{})", function.name, list(args), if star.is_some() { "*" } else { "" })
        }
        ExprKind::Unary { op, operand } => format!("({op:?} {})", shape(operand)),
        ExprKind::Binary { op, left, right, .. } => format!("({op:?} {} {})", shape(left), shape(right)),
        ExprKind::IsNull { operand, negated } => format!("({}null? {})", not(negated), shape(operand)),
        ExprKind::IsDistinct { left, right, negated } => {
            format!("({}distinct {} {})", not(negated), shape(left), shape(right))
        }
        ExprKind::InList { operand, list: items, negated } => {
            format!("({}in {} [{}])", not(negated), shape(operand), list(items))
        }
        ExprKind::InNet { operand, net, negated } => {
            format!("({}in-net {} {})", not(negated), shape(operand), shape(net))
        }
        ExprKind::Between { operand, low, high, negated } => {
            format!("({}between {} {} {})", not(negated), shape(operand), shape(low), shape(high))
        }
        ExprKind::Like { operand, pattern, negated } => {
            format!("({}like {} {})", not(negated), shape(operand), shape(pattern))
        }
        ExprKind::Case { operand, arms, otherwise } => {
            let arms: Vec<String> =
                arms.iter().map(|arm| format!("{}:{}", shape(&arm.when), shape(&arm.then))).collect();
            let operand = operand.as_ref().map(|operand| shape(operand) + " ").unwrap_or_default();
            let otherwise =
                otherwise.as_ref().map(|expr| format!(" else:{}", shape(expr))).unwrap_or_default();
            format!("(case {operand}{}{otherwise})", arms.join(" "))
        }
        ExprKind::Subselect(select) | ExprKind::Exists(select) => {
            let word = if matches!(expr.kind, ExprKind::Exists(_)) { "exists" } else { "select" };
            let item = match &select.item {
                crate::ast::SelectItem::Star(_) => "*".to_owned(),
                crate::ast::SelectItem::Value { value, .. } => shape(value),
            };
            let scan = select.scan_max.as_ref().map(|max| format!(" max {}", shape(max))).unwrap_or_default();
            let filter =
                select.filter.as_ref().map(|filter| format!(" where {}", shape(filter))).unwrap_or_default();
            format!("({word} {item} {}{scan}{filter})", select.table.name)
        }
        ExprKind::List(look) => {
            let filter =
                look.filter.as_ref().map(|filter| format!(" where {}", shape(filter))).unwrap_or_default();
            let (item, list, max) = (&look.item.name, look.list.to_dotted(), shape(&look.elements_max));
            format!("({:?} {item} in {list}{filter} max {max})", look.form)
        }
        ExprKind::Entry { map, key } => format!("{}[{}]", map.to_dotted(), shape(key)),
        ExprKind::Cast { operand, ty } => format!("(cast {} {:?})", shape(operand), ty.kind),
    }
}

pub(crate) const DESIGN: &str = include_str!("../../tests/design.weft");

#[test]
fn design_page_parses_cleanly() {
    // These are the first examples that people copy.
    check(DESIGN, &[]);
}

#[test]
fn paper_form_parses_cleanly() {
    let text = "CREATE TABLE ac_tab (name TEXT, permission TEXT);
CREATE ELEMENT acl ON rpc AS ON REQUEST
INSERT INTO output SELECT * FROM input JOIN ac_tab ON input.name = ac_tab.name WHERE ac_tab.permission = 'W';
END;";
    let ast = check(text, &[]);
    let Item::Element(element) = &ast.items[1] else { panic!("an element") };
    assert!(
        matches!(&element.handlers[0].body[0].kind, StmtKind::Guard(guard) if guard.into_output.is_some())
    );
}

#[test]
fn operators_bind_as_in_sql() {
    check_expr("a OR b AND NOT c = d + e * f", "(Or a (And b (Not (Eq c (Add d (Mul e f))))))");
    check_expr("a - b - c", "(Sub (Sub a b) c)");
    check_expr("-a * -2 || 'x'", "(Concat (Mul (Neg a) (Neg 2)) \"x\")");
    check_expr("a & b + 1 = c & d", "(Eq (BitAnd a (Add b 1)) (BitAnd c d))");
    check_expr("(a OR b) AND c", "(And (Or a b) c)");
    check_expr("a IS NOT NULL AND b IS NOT DISTINCT FROM c", "(And (not-null? a) (not-distinct b c))");
    check_expr(
        "a NOT IN (1, 2) OR ip.src IN '10.0.0.0/8'",
        "(Or (not-in a [1 2]) (in-net ip.src \"10.0.0.0/8\"))",
    );
    check_expr("a BETWEEN 1 AND 2 AND b NOT LIKE 'x%'", "(And (between a 1 2) (not-like b \"x%\"))");
    check_expr("CASE WHEN a THEN 1 ELSE 2 END + 1", "(Add (case a:1 else:2) 1)");
    check_expr("CASE a WHEN 1 THEN 'x' WHEN 2 THEN 'y' END", "(case a 1:\"x\" 2:\"y\")");
    check_expr("header['a' || b] || trailer['c']", "(Concat header[(Concat \"a\" b)] trailer[\"c\"])");
    check_expr(
        "(SELECT dst FROM r WHERE slot = f(count(r), 1))",
        "(select dst r where (Eq slot f(count(r) 1)))",
    );
    check_expr("(SELECT min(c) FROM SCAN t MAX 10 WHERE c > 1)", "(select min(c) t max 10 where (Gt c 1))");
    check_expr("NOT EXISTS (SELECT * FROM t WHERE k = 1)", "(Not (exists * t where (Eq k 1)))");
    check_expr("CAST(a AS TEXT(8))", "(cast a Text(Some(8)))");
    check_expr("input.order.\"from\" = now()", "(Eq input.order.from now())");
    check_expr("count(*) <> 0xff", "(Ne count(*) 255)");
    check_expr("true AND FALSE OR Null", "(Or (And true false) null)");
}

#[test]
fn every_statement_parses() {
    let ast = check(
        "CREATE OR REPLACE ELEMENT e (a F64 = 1.5, path TEXT) ON rpc (user TEXT, id I64?) RETURNS (code shop.Code) AS
           TABLE t (a TEXT(8), b I64 = 0 MERGE SUM, PRIMARY KEY (a)) TTL '1 s' ON ACCESS MAX 10 ROWS EVICT LRU;
           TABLE u (a TEXT(8) PRIMARY KEY) MAX 10 ROWS FILLED BY CONTROLLER;
           TABLE w (a TEXT(8) PRIMARY KEY) MAX 10 ROWS EVICT REJECT PER WORKER;
           VAR n U64 = 0 MERGE MAX; CALL (c F64 = 0, d TEXT(4)); EDGE out;
           SINK log (user TEXT, ms F64) TO FILE path FORMAT JSON; SINK m (x F64) TO METRICS;
           SKETCH s (ip.src, 1) SUM bytes TOP 10 WINDOW '1 m' ERROR 1 PERCENT;
           ON OPEN LET x = 1; LET y TEXT(8) = 'a'; SET c = x; SET header['k'] = 'v'; SET trailer['k'] = 'v';
           ON REQUEST
             IF a > 1 THEN ADD n; ELSIF a > 2 THEN ADD n, 2; RESET n; ELSE POP; END IF;
             SELECT *, a + 1 AS b FROM input LEFT JOIN t z USING (a) JOIN u ON u.a = user WHERE b ELSE DROP;
             INSERT INTO t (a, b) VALUES ('x', 1), ('y', 2); INSERT INTO log SELECT user, 1.0 FROM input WHERE a = 1;
             UPSERT t KEY (user, 1) SET a = 1, b = 2;
             UPDATE t SET a = 1 WHERE b = 1 RETURNING a INTO c, b INTO d ELSE
               ABORT UNAVAILABLE 'x' WITH header['a'] = 1, trailer['b'] = 2;
             UPDATE t SET a = 1 ELSE DO ADD n; FORWARD; END UPDATE;
             UPDATE t SET a = 1 ELSE INSERT INTO t VALUES (1);
             DELETE FROM t WHERE a = 1;
             SCAN t MAX 10 AS r WHERE r.a = 1 DO ADD n, r.b; END SCAN;
             MIRROR TO spare; MARK 3; MARK (a = 1, b = 2); DELAY '5 ms';
             SIGNAL s(1, 2); MESSAGE (a = 1); MESSAGE TO x (a = 1);
             PUSH vxlan (vni = 1);
             FORWARD;
           ON RESPONSE DROP; ON CLOSE ABORT 7; ON ERROR ABORT (a) 'text'; ON MESSAGE REPLY (a = 1, b = 2);
           ON PACKET STEER TO out;
           ON EVERY '1 s' REDIRECT TO (SELECT a FROM t WHERE a = 1);
           ON TIMEOUT OF t FORWARD; ON EVICT OF t FORWARD; ON SIGNAL s FORWARD; ON SIGNAL v (a I64) FORWARD;
         END;
         CREATE TYPE cart FROM PROTO 'cart.proto'; IMPORT 'a.weft'; DROP ELEMENT e;
         INSERT INTO shop.acl.ac_tab VALUES ('alice', 'W'), ('bob', 'R'); INSERT INTO t (a) VALUES (-1);",
        &[],
    );
    let Item::Element(element) = &ast.items[0] else { panic!("an element") };
    assert!(element.or_replace && !element.is_faulty);
    assert_eq!(element.decls.len(), 9);
    assert_eq!(element.handlers.len(), 12);
    assert!(
        matches!(&element.decls[0], Decl::Table(table) if table.options.len() == 2 && table.key.is_some())
    );
    assert_eq!(element.handlers[1].body.len(), 19);
    assert_eq!(ast.items.len(), 6);
}

#[test]
fn every_chain_option_parses() {
    let ast = check(
        "CREATE LISTENER l ON tcp '127.0.0.1:1'; CREATE LISTENER u ON unix '/x' WITH (backlog = 10, x = 'y');
         CREATE CLUSTER c TO '127.0.0.1:1', 'unix:/x' USING LEAST REQUEST WITH (a = 1);
         CREATE CLUSTER d TO 'a:1' USING ROUND ROBIN; CREATE CLUSTER f TO 'a:1' USING RANDOM; CREATE CLUSTER g TO 'a:1';
         CREATE ROUTE r ON l METHOD 'a/*' WHEN header['x'] = 'y' TO CLUSTER c; CREATE ROUTE s ON l TO CLUSTER c;
         CREATE CHAIN n ON l -> c AS END;
         CREATE CHAIN m ON l -> c METHOD 'a/*' AS
           a (x = 1, y := req.user.id) AS b AT CLIENT MANDATORY -> {d, e (z = 'q')} -> f AT SERVER;
           EQUIVALENCE observable; PIN STREAM DRAIN '30 s'; FAIL OPEN; ORDER a BEFORE b; PRIORITY a > b;
           POSITION a LAST; POSITION b FIRST; ON FAILURE OF a BYPASS; d.suspect -> g -> h;
         END;",
        &[],
    );
    let Item::Chain(chain) = ast.items.last().unwrap() else { panic!("a chain") };
    assert_eq!((chain.stages.len(), chain.options.len()), (3, 9));
}

#[test]
fn three_faults_report_together() {
    check(
        "CREATE ELEMENT acl ON rpc (user TEXT) AS
  TABLE t (a TEXT(8) PRIMARY KEY) MAX 10 ROW;
  ON REQUEST
    SET x = ;
    LET y = 1;
    SELECT * FROM input WERE user = 'x' ELSE DROP;
    FORWARD;
END;
CREATE LISTENER l ON tcp '1';",
        &[
            "2:42 W0105 expected `ROWS`, found `ROW`",
            "4:13 W0105 expected an expression, found `;`",
            "6:25 W0105 expected `LEFT`, `JOIN`, `WHERE`, `ELSE` or `;`, found `WERE`",
        ],
    );
}

#[test]
fn fault_does_not_close_block() {
    check(
        "CREATE ELEMENT e ON rpc AS ON REQUEST
  IF a = = 1 THEN
    SET b = 2;
    SET c 3;
  ELSE
    SET d = );
  END IF;
  SCAN t MAX DO ADD n; END SCAN;
  FORWARD;
END;",
        &[
            "2:10 W0105 expected an expression, found `=`",
            "4:11 W0105 expected `=`, found number `3`",
            "6:13 W0105 expected an expression, found `)`",
            "8:14 W0108 `DO` is a keyword, but an expression is expected here",
        ],
    );
}

#[test]
fn misspelled_keywords_parse() {
    // The statement after the misspelled keyword must not be blamed for it.
    check(
        "CRATE ELEMNT e ON rpc AS
  TABEL t (a TEXT) MAX 1 ROWS;
  ON REQUST
    SELCT * FROM input ELSE DRPO;
    x = 1;
    ABROT UNAVAILABLE;
    frobnicate the message;
END;
CREATE CHAIN c ON a -> b AS e; ODRER a BEFORE b; END;",
        &[
            "1:1 W0109 unexpected `CRATE` in a file",
            "1:7 W0106 unknown kind `ELEMNT`",
            "2:3 W0109 unexpected `TABEL` in an element",
            "3:6 W0105 unknown event `REQUST`",
            "4:5 W0109 unexpected `SELCT` in a handler",
            "4:29 W0109 unexpected `DRPO` in an `ELSE`",
            "5:5 W0109 `x` is not a statement",
            "6:5 W0109 unexpected `ABROT` in a handler",
            "7:5 W0109 `frobnicate` is not a statement",
            "9:32 W0109 unexpected `ODRER` in a chain",
        ],
    );
}

#[test]
fn missing_end_is_reported_in_place() {
    check_stmt(
        "SET a = 1\nSET b = 2",
        &["2:10 W0105 expected `;` at the end", "3:10 W0105 expected `;` at the end"],
    );
    check_stmt("IF a THEN SET b = 1;", &["2:1 W0110 this `IF` has no `END IF;`"]);
    check_stmt("IF a THEN SET b = 1; END SCAN;", &["2:22 W0110 `IF` is closed by a different `END`"]);
    check_stmt("SCAN t MAX 1 DO IF a THEN POP; END SCAN;", &["2:17 W0110 this `IF` has no `END IF;`"]);
    check_stmt("SET a = 1; END IF; SET b = 2;", &["2:12 W0105 `END IF` has no open block"]);
    check_stmt(
        "for i in 1..5 DO x; END FOR; SET b = 2;",
        &["2:1 W0109 `for` is not a statement", "2:21 W0105 `END FOR` has no open block"],
    );
    check(
        "x = 1;\n y; ON a; LET b;\nIMPORT 'a';",
        &["1:1 W0105 expected `CREATE`, `IMPORT`, `DROP` or `INSERT`, found `x`"],
    );
    check_stmt("SELECT * FROM input; ELSE DROP;", &["2:22 W0105 this `ELSE` has no `IF`"]);
    check_stmt("SET a = 'x;\nSET b = 1;", &["2:9 W0102 this string has no closing quote"]);
    check(
        "CREATE ELEMENT e ON rpc AS ON REQUEST FORWARD;\nCREATE LISTENER l ON tcp 'x'",
        &["1:47 W0110 element `e` has no `END;`", "2:29 W0105 expected `;` at the end"],
    );
}

#[test]
fn misplaced_clause_reports_once() {
    check_stmt("FORWARD; TABLE t (a TEXT); SET a = 1;", &["2:10 W0112 a declaration after a handler"]);
    check(
        "CREATE ELEMENT e ON rpc AS SET a = 1; SET b = 1; END;",
        &["1:28 W0105 a statement before the first handler"],
    );
    check_stmt("SET a = b < c < d;", &["2:15 W0111 comparisons do not chain"]);
    check_stmt("SELECT * FROM t;", &["2:15 W0105 a statement can only select from `input`, not from `t`"]);
    check_stmt(
        "x := 1; LET y := 2;",
        &["2:1 W0109 `x` is not a statement", "2:15 W0105 expected `=`, found `:=`"],
    );
    check_stmt("LET end = 1;", &["2:5 W0108 `end` is a keyword, but a new name is expected here"]);
    check_stmt("LET x I64(8) = 1;", &["2:10 W0115 this type has no length"]);
    check_stmt("LET x TEXT(0) = 1;", &["2:12 W0115 this length is out of range"]);
    check(
        "CREATE TABLE t (a TEXT PRIMARY KEY PRIMARY KEY); SELECT 1; CREATE WIDGET w; ALTER x; DROP STACK q; DROP 1; 5;",
        &[
            "1:36 W0114 `PRIMARY KEY` is written twice",
            "1:50 W0107 `SELECT` works on a running network, not in a file",
            "1:67 W0106 unknown kind `WIDGET`",
            "1:77 W0107 `ALTER` works on a running network, not in a file",
            "1:91 W0107 `STACK` is not supported in this version",
            "1:105 W0105 expected `TYPE`, `TABLE`, `ELEMENT`, `FILTER`, `CHAIN`, `LISTENER`, `CLUSTER`, `ROUTE`, \
             `FUNCTION`, `PROTOCOL`, `PORT`, `GROUP`, `QUEUE` or `LINK`, found number `1`",
            "1:108 W0105 expected `CREATE`, `IMPORT`, `DROP` or `INSERT`, found number `5`",
        ],
    );
}

#[test]
fn deep_nesting_errs_without_overflow() {
    // A hostile file must not crash the controller by a stack overflow.
    const N: usize = 100_000;
    let nests = [
        ("(", ")"),
        ("NOT ", ""),
        ("- ", ""),
        ("f(", ")"),
        ("CASE WHEN ", " THEN 1 END"),
        ("header[", "]"),
        ("(SELECT a FROM t WHERE ", ")"),
        ("a IN (", ")"),
        ("CAST(", " AS TEXT)"),
    ];
    for (open, close) in nests {
        let text = format!("CREATE ROUTE r ON l WHEN {}a{} TO CLUSTER c;", open.repeat(N), close.repeat(N));
        let (_, _, diagnostics) = parse_text(&text);
        assert_eq!(diagnostics.len(), 1, "{open}");
        assert_eq!(diagnostics[0].code, code::NESTING_TOO_DEEP, "{open}");
    }
    for open in ["IF a THEN ", "SCAN t MAX 1 DO ", "UPDATE t SET a = 1 ELSE ", "UPDATE t SET a = 1 ELSE DO "]
    {
        let text = format!("CREATE ELEMENT e ON rpc AS ON REQUEST {}", open.repeat(N));
        let (_, _, diagnostics) = parse_text(&text);
        assert_eq!(diagnostics.len(), 1, "{open}");
        assert_eq!(diagnostics[0].code, code::NESTING_TOO_DEEP, "{open}");
    }
    for op in [" + ", " OR ", " || "] {
        let text = format!("CREATE ROUTE r ON l WHEN {} TO CLUSTER c;", vec!["a"; N].join(op));
        let (_, _, diagnostics) = parse_text(&text);
        assert_eq!(diagnostics.iter().map(|d| d.code).collect::<Vec<_>>(), [code::EXPR_TOO_LARGE], "{op}");
    }
}

#[test]
fn tree_at_limits_can_be_walked() {
    // Just under every limit at once: cloning, printing and dropping are recursive.
    let sum = vec!["a"; 190].join(" + ");
    let text =
        format!("CREATE ROUTE r ON l WHEN {}{sum}{} TO CLUSTER c;", "(NOT ".repeat(31), ")".repeat(31));
    let ast = check(&text, &[]);
    let copy = ast.clone();
    assert_eq!(copy, ast);
    assert!(format!("{copy:?}").len() > 1000);
}

#[test]
fn large_inputs_take_linear_time() {
    let mut sources = SourceMap::new();
    let refused = sources.add("big.weft", "x ".repeat(5 << 20)).unwrap_err();
    assert_eq!(refused.code, code::SOURCE_TOO_LARGE);

    let names: Vec<String> =
        (0..weft_core::limits::LIST_ITEMS_MAX).map(|index| format!("n{index}")).collect();
    let text = format!("CREATE ROUTE r ON l WHEN a IN ({}) TO CLUSTER c;\n", names.join(", "));
    check(&text.repeat(6), &[]);

    let unit = "SET a = b + 1;\n";
    let text = format!("CREATE ELEMENT e ON rpc AS ON REQUEST\n{}END;", unit.repeat(40_000));
    check(&text, &[]);
    for soup in
        ["(", ";", "x ", "x;\n", "IF ", "END IF;", "'", "/*", "CREATE ", "SET x = (;\n", "ELSE ", "\u{1F600}"]
    {
        let (_, _, diagnostics) = parse_text(&soup.repeat((256 << 10) / soup.len()));
        assert!((1..=2 * crate::source::DIAGNOSTICS_MAX + 1).contains(&diagnostics.len()), "{soup}");
    }
}

#[test]
fn help_shows_syntax() {
    let (sources, _, diagnostics) =
        parse_text("CREATE ELEMENT e ON rpc AS ON REQUEST\n  UPSERT b KEY input.tenant SET a = 1;\nEND;");
    let text =
        crate::diagnostic::render_all(&diagnostics, &sources, crate::diagnostic::RenderOptions::default());
    insta::assert_snapshot!(text, @r"
    error[W0105]: expected `(`, found `input`
       --> t.weft:2:16
       |
     2 |   UPSERT b KEY input.tenant SET a = 1;
       |                ^^^^^
       = help: syntax: `UPSERT t KEY (e, ...) SET c = e, ...;`

    1 error
    ");
}

mod soup {
    use super::{DESIGN, parse_text};
    use proptest::prelude::*;

    const WORDS: &[&str] = &[
        "CREATE",
        "ELEMENT",
        "CHAIN",
        "TABLE",
        "ON",
        "AS",
        "END",
        "IF",
        "THEN",
        "ELSE",
        "ELSIF",
        "SELECT",
        "FROM",
        "input",
        "JOIN",
        "USING",
        "WHERE",
        "SET",
        "LET",
        "UPDATE",
        "UPSERT",
        "KEY",
        "INSERT",
        "INTO",
        "output",
        "VALUES",
        "SCAN",
        "MAX",
        "ROWS",
        "DO",
        "CASE",
        "WHEN",
        "NOT",
        "IN",
        "IS",
        "NULL",
        "AND",
        "BETWEEN",
        "ABORT",
        "WITH",
        "RETURNING",
        "REQUEST",
        "EVERY",
        "rpc",
        "a",
        "header",
        "[",
        "]",
        "(",
        ")",
        "{",
        "}",
        ",",
        ";",
        ".",
        "->",
        ":=",
        "=",
        "<",
        "-",
        "*",
        "'x'",
        "1",
        "2.5",
        "\"q\"",
        "'open",
        "--c\n",
        "/*c*/",
        "\n",
        "\u{e9}",
        "CAST",
        "EXISTS",
        "SINK",
        "TO",
        "FILE",
        "FILTER",
        "TIMEOUT",
        "TOTAL",
        "TRY",
        "RETRY",
        "UP",
        "BACKOFF",
        "EXPONENTIAL",
        "PERCENT",
        "BUDGET",
        "RATE",
        "PER",
        "SECOND",
        "CIRCUIT",
        "AFTER",
        "ERRORS",
        "RATIO",
        "OF",
        "FLIGHT",
        "status",
    ];

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(300) })]

        #[test]
        fn token_soup_does_not_panic(words in proptest::collection::vec(proptest::sample::select(WORDS), 0..120)) {
            parse_text(&words.join(" "));
            parse_text(&format!("CREATE ELEMENT e ON rpc AS ON REQUEST {}", words.join(" ")));
            parse_text(&format!("CREATE FILTER f ON rpc AS {}", words.join(" ")));
        }

        #[test]
        fn any_text_does_not_panic(text in "\\PC{0,200}") {
            parse_text(&text);
        }

        #[test]
        fn damaged_program_does_not_panic(
            at in 0..DESIGN.len(),
            n_cut in 0_usize..40,
            word in proptest::sample::select(WORDS),
        ) {
            let floor = |mut at: usize| { while !DESIGN.is_char_boundary(at) { at -= 1; } at };
            let (start, end) = (floor(at), floor((at + n_cut).min(DESIGN.len())));
            parse_text(&format!("{}{word}{}", &DESIGN[..start], &DESIGN[end..]));
        }
    }
}
