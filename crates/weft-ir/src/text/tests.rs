use super::*;
use crate::generate::{self, Rng};

fn functions(seed: u64) -> Vec<Function> {
    let chain = generate::chain(&mut Rng::from_seed(seed));
    let handlers = chain.elements.iter().flat_map(|element| element.handlers.all());
    handlers.map(|(_, function)| function.clone()).collect()
}

/// Compares functions by their Debug form, because NaNs are not equal to themselves.
fn assert_same(a: &Function, b: &Function) {
    assert_eq!(format!("{a:?}"), format!("{b:?}"));
}

#[test]
fn function_text_round_trips() {
    // IR files and failing seeds would not show what was run.
    for seed in 0..150 {
        for function in functions(seed) {
            let text = write(&function);
            let read = parse(&text).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
            assert_same(&read, &function);
        }
    }
}

#[test]
fn malformed_function_round_trips() {
    // Tests of the verifier, and debugging of passes, need malformed functions.
    let function = Function {
        name: "odd \"name\"\n".into(),
        blocks: vec![Block { scan_rows_max: Some(3), ..Block::default() }, Block::default()],
        types: vec![Ty::Row, Ty::Bytes],
    };
    assert_same(&parse(&write(&function)).unwrap(), &function);
}

#[test]
fn text_form_is_readable() {
    // People read this form in `explain` and in failing tests.
    let text = "\
function \"acl.request\" {
block0:
    v0: bytes = input in0                   ; line 4
    v1: row = find t0, v0
    v2: bool = is_row v1
    v3: bytes = bytes \"no \\\"; x\\\"\\x00\"
    branch v2, block1, block2(v1, v3)
block1: scan 7
    emit s0, v2, v3 null v2
    var_merge.journal var1, v0
    forward
block2(v4: row, v5: bytes):
    abort PERMISSION_DENIED, v3             ; line 6
}
";
    assert_eq!(write(&parse(text).unwrap()), text);
}

#[test]
fn parse_error_names_line() {
    let error = |body: &str| parse(&format!("function \"f\" {{\n{body}\n}}")).unwrap_err().to_string();
    let cases = [
        ("    forward", "line 2: expected a block, found `forward`"),
        ("block1:", "line 2: expected `block0`, found `block1:`"),
        ("block0:\n  v0: num = int 1", "line 3: expected a type of values, found `num = int 1`"),
        ("block0:\n  v0: int = int", "line 3: expected a number, the line ends"),
        ("block0:\n  v0: int = ad v1, v1", "line 3: expected an operation, found `ad v1, v1`"),
        ("block0:\n  find.journal t0, v0", "line 3: expected an operation, found `find.journal t0, v0`"),
        ("block0:\n  abort NO", "line 3: expected a status, found `NO`"),
        ("block0:\n  mark.class v0 v1", "line 3: expected the end of the line, found `v1`"),
        ("block0:\n  v0: bytes = bytes \"\\q\"", "line 3: expected an escape"),
        ("block0:\n  v0: bytes = bytes \"x", "line 3: expected a closing quote"),
        ("block0:\n  v9999999: int = now", "line 3: expected a value below v1048576"),
        ("block0:", "line 3: expected the end of the block, the line ends"),
        ("block0:\n  v1: int = now\n  forward", "line 5: expected a definition of v0"),
    ];
    for (body, wanted) in cases {
        let found = error(body);
        assert!(found.starts_with(wanted), "{body}\n{found}\n{wanted}");
    }
    assert_eq!(parse("").unwrap_err().to_string(), "line 0: expected `function`");
}

#[test]
fn function_parser_never_panics() {
    // The parser reads files, so it must report an error for any content.
    for seed in 0..400 {
        let mut rng = Rng::from_seed(seed);
        let mut text = write(&functions(seed % 7)[0]).into_bytes();
        for _ in 0..1 + rng.below(6) {
            let at = rng.below(text.len());
            match rng.below(3) {
                0 => drop(text.remove(at)),
                1 => text[at] = rng.pick(b"\"\\;v0:{},(=\n\xc3 blx"),
                _ => text.truncate(at.max(1)),
            }
        }
        let _ = parse(&String::from_utf8_lossy(&text));
    }
}

#[test]
fn chain_text_round_trips() {
    // A failing seed could not be kept as a file.
    for seed in 0..60 {
        let mut chain = generate::chain(&mut Rng::from_seed(seed));
        chain.sinks[0].target = crate::program::SinkTarget::File("a \"b\"; c".into());
        chain.sinks[1].target = crate::program::SinkTarget::Metrics;
        chain.tables[0].spec.stripes = Some(4);
        let text = write_program(&chain);
        let read = parse_program(&text).unwrap_or_else(|e| panic!("seed {seed}: {e}\n{text}"));
        assert_eq!(format!("{read:?}"), format!("{chain:?}"));
    }
}

#[test]
fn chain_parse_error_names_line() {
    for (rest, wanted) in [
        ("row 1", "line 2: expected a declaration that may stand here, found `row 1`"),
        ("what", "line 2: expected a declaration that may stand here, found `what`"),
        ("input \"a\" TXT", "line 2: expected a type of the language, found `TXT`"),
        ("input \"a\" U65", "line 2: expected a type of the language, found `U65`"),
        (
            "input \"a\" U64 tail",
            "line 2: expected where the input is: `body`, `header`, `meta`, ..., found `tail`",
        ),
        ("var \"\" \"v\" I64 word 0 start x", "line 2: expected a number, found `x`"),
        ("element \"a\" \"b\"\nhandler open function \"f\" {", "line 3: expected `}`"),
        ("answer \"a\" 1", "line 2: expected the end of the line, found `1`"),
    ] {
        let error = parse_program(&format!("chain \"c\"\n{rest}")).unwrap_err().to_string();
        assert_eq!(error, wanted);
    }
}

#[test]
fn chain_parser_never_panics() {
    let text = write_program(&generate::chain(&mut Rng::from_seed(3)));
    for seed in 0..200 {
        let mut rng = Rng::from_seed(seed);
        let mut bytes = text.clone().into_bytes();
        let at = rng.below(bytes.len().min(3000));
        bytes[at] = rng.pick(b"\"\\;v0:{},(=\n\xc3 blx");
        let _ = parse_program(&String::from_utf8_lossy(&bytes));
    }
}
