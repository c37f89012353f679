use proptest::prelude::*;

use super::*;
use crate::parser::parse;

fn parse_text(text: &str) -> (SourceMap, FileId) {
    let mut sources = SourceMap::new();
    let file = sources.add("t.weft", text).unwrap();
    (sources, file)
}

/// Formats `text`, and checks the rules for every file without errors.
#[track_caller]
fn formatted(text: &str) -> String {
    let (sources, file) = parse_text(text);
    let once =
        format(&sources, file).unwrap_or_else(|| panic!("has faults: {:?}\n{text}", parse(&sources, file).1));
    let (again, again_file) = parse_text(&once);
    let (tree, tree_again) = (parse(&sources, file), parse(&again, again_file));
    assert!(tree_again.1.is_empty(), "formatting broke it: {:?}\n{once}", tree_again.1);
    assert_eq!(format!("{:#?}", tree.0), format!("{:#?}", tree_again.0), "the tree changed:\n{once}");
    assert_eq!(format(&again, again_file).unwrap(), once, "formatting is not idempotent");
    assert_eq!(comments(text), comments(&once), "a comment was lost");
    assert!(
        once.lines().all(|line| line == line.trim_end() || line.contains("/*")),
        "trailing space:\n{once}"
    );
    once
}

fn comments(text: &str) -> Vec<String> {
    let lexed = crate::lexer::lex(FileId(0), text);
    let text_of = |comment: &Comment| {
        let lines: Vec<&str> = text[comment.span.range()].lines().map(str::trim_end).collect();
        lines.join("\n")
    };
    lexed.comments.iter().map(text_of).collect()
}

#[track_caller]
fn check(text: &str, expect: &str) {
    assert_eq!(formatted(text), expect);
}

/// The part of the example program that this version parses.
fn design() -> String {
    let text = crate::parser::tests::DESIGN;
    let (sources, file) = parse_text(text);
    let items = parse(&sources, file).0.items;
    let texts: Vec<&str> = items.iter().map(|item| sources.slice(item.span())).collect();
    texts.join("\n\n")
}

#[test]
fn design_page_is_formatted() {
    // The examples of the design and the output of `weft fmt` must agree.
    insta::assert_snapshot!(formatted(&design()));
}

#[test]
fn keywords_and_spaces_normalize() {
    check(
        "create element e(a f64=1)on rpc(user text(8)?)as\ncall(c i64=-1);on request\n\n\n\n\
         set c=- -a*( b+1 );abort unavailable'x'with header [ 'k' ]=count( * );end;",
        "CREATE ELEMENT e (a F64 = 1) ON rpc (user TEXT(8)?) AS
  CALL (c I64 = -1);
  ON REQUEST

    SET c = - -a * (b + 1);
    ABORT unavailable 'x' WITH header['k'] = count(*);
END;
",
    );
}

#[test]
fn comments_keep_their_place() {
    check(
        "-- head\n\n\n-- more\nCREATE LISTENER l -- a name\n  ON tcp /* inline */ '1'   ; -- after\n\
         /* own\n   lines */\n
CREATE ELEMENT e ON rpc AS\n-- decl\nVAR n U64; -- one\nON REQUEST -- why\n-- first\n\
         ADD n, -- the amount\n-- odd place\n2;\n-- last\nEND; -- closed\n-- end of file",
        "-- head

-- more
CREATE LISTENER l  -- a name
  ON tcp  /* inline */ '1';  -- after
/* own
   lines */

CREATE ELEMENT e ON rpc AS
  -- decl
  VAR n U64;  -- one
  ON REQUEST  -- why
    -- first
    ADD n,  -- the amount
      -- odd place
      2;
  -- last
END;  -- closed
-- end of file
",
    );
}

#[test]
fn long_lines_break_before_clauses() {
    let columns: Vec<String> = (0..20).map(|index| format!("column_{index} TEXT(64)")).collect();
    let text = format!(
        "CREATE ELEMENT e ON rpc AS TABLE t ({}) MAX 10 ROWS; ON REQUEST IF a THEN \
         UPDATE t SET a = 1 WHERE {} RETURNING a INTO b ELSE DO FORWARD; END UPDATE; END IF; END;",
        columns.join(","),
        ["some_condition = 1"; 10].join(" AND "),
    );
    let out = formatted(&text);
    assert!(out.lines().all(|line| line.chars().count() <= LINE_COLUMNS_MAX), "{out}");
    insta::assert_snapshot!(out);
}

#[test]
fn short_ifs_stay_on_one_line() {
    check(
        "CREATE ELEMENT e ON rpc AS ON REQUEST IF a THEN ADD n; END IF; \
         IF a THEN ADD n; ELSE POP; END IF;\nIF a THEN\nADD n; END IF; END;",
        "CREATE ELEMENT e ON rpc AS
  ON REQUEST
    IF a THEN ADD n; END IF;
    IF a THEN
      ADD n;
    ELSE
      POP;
    END IF;
    IF a THEN
      ADD n;
    END IF;
END;
",
    );
}

#[test]
fn faulty_file_is_not_formatted() {
    let (sources, file) = parse_text("CREATE LISTENER l ON tcp;");
    assert_eq!(format(&sources, file), None);
    let (sources, file) = parse_text("");
    assert_eq!(format(&sources, file).as_deref(), Some(""));
    check("-- only a comment", "-- only a comment\n");
    check("\r\n-- a\r\nIMPORT 'x' ;\r\n", "-- a\nIMPORT 'x';\n");
}

#[test]
fn large_file_formats_in_linear_time() {
    let unit = "IF a THEN SET b = c; END IF; -- why\n";
    let text = format!("CREATE ELEMENT e ON rpc AS ON REQUEST\n{}END;", unit.repeat(4_000));
    formatted(&text);
    let names: Vec<String> = (0..16_000).map(|index| format!("n{index}")).collect();
    formatted(&format!("CREATE ROUTE r ON l WHEN a IN ({}) TO CLUSTER c;", names.join(", ")));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// For any white space and any comments between the tokens of a program, the rules of `formatted` hold.
    #[test]
    fn format_is_stable_for_any_spacing(gaps in proptest::collection::vec(0_usize..14, 64), width in 0_usize..60) {
        let text = design();
        let lexed = crate::lexer::lex(FileId(0), &text);
        let mut out = String::new();
        for (index, token) in lexed.tokens.iter().enumerate() {
            out.push_str(match gaps[(index * 7 + index / 64) % gaps.len()] {
                0 => "\n",
                1 => "\n\n\n",
                2 => " -- c\n",
                3 => "\n  -- own  \n",
                4 => " /* b */ ",
                5 => "\n/* b\n  c */\n",
                6 => "/* b */\n",
                7 => "\n/* b */",
                _ => " ",
            });
            let word = &text[token.span.range()];
            // Longer names move the line breaks.
            out.push_str(word);
            if word == "input" { out.push_str(&format!("{:width$}", "")); }
        }
        formatted(&out);
    }

    /// A program with a piece cut out that still parses is formatted by the same rules.
    #[test]
    fn format_is_stable_for_any_cut(at in 0_usize..3000, n_cut in 1_usize..30) {
        let text = design();
        let (start, end) = (at.min(text.len()), (at + n_cut).min(text.len()));
        let cut = format!("{}{}", &text[..start], &text[end..]);
        let (sources, file) = parse_text(&cut);
        if parse(&sources, file).1.is_empty() {
            formatted(&cut);
        }
    }
}

#[test]
fn semicolon_gets_no_own_line() {
    // This failed after a long UPDATE without ELSE.
    let set = "SET number_of_calls = number_of_calls + 1, last = now()";
    let text = formatted(&format!(
        "CREATE ELEMENT e ON rpc (user TEXT) AS ON REQUEST UPDATE t {set} WHERE user = input.user AND method = \
         input.method AND tenant = input.tenant; END;"
    ));
    assert!(!text.lines().any(|line| line.trim() == ";"), "{text}");
}

#[test]
fn filter_policies_stay_together() {
    // A policy reads like a sentence; the backoff of a long RETRY goes to a separate line.
    let text = formatted(
        "create filter f(n int=1)on rpc(user text)as timeout total '1 s';retry up to n when status in(UNAVAILABLE,\
         DEADLINE_EXCEEDED) backoff exponential '5 ms' to '250 ms' jitter 20 percent budget 20 percent and 3 per \
         second;rate 5 per second burst 2 per user, method queue 5 wait '1 s' keys 10;circuit ratio 5 percent of 2 in \
         '1 s' in flight 3 open for '2 s';congestion aimd from 3 max 4;over unix;end;",
    );
    insta::assert_snapshot!(text);
}
