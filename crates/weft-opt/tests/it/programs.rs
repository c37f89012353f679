//! Runs the program tests in `tests/programs`, and compares backends and numbers of workers.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::num::NonZeroUsize;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{fs, iter, thread};

use weft_core::abi::{EditTarget, Fault, REGION_BODY, Slot, Verdict};
use weft_core::inputs::InputSet;
use weft_core::list::ListCell;
use weft_core::native::{NativeDecl, Prepared};
use weft_core::schema::Schema;
use weft_core::table::RemovalReason;
use weft_core::types::{Repr, Type};
use weft_core::wire::Protocol;
use weft_core::{Status, Time, Value};
use weft_ir::backend::{Backend, Program};
use weft_ir::generate::{Observation, Observed, Pass, World};
use weft_ir::interp::Interp;
use weft_ir::ir::Op;
use weft_ir::program::{ChainProgram, Event, Input, InputLocation, Realisation, RowRemoval};
use weft_ir::verify::Handler;
use weft_jit::Jit;
use weft_lang::Resolver;
use weft_lang::diagnostic::{RenderOptions, render_all};
use weft_lang::resolve::{SchemaFault, SchemaSource};
use weft_lang::types::read_text;
use weft_native::{ENTROPY_BYTES, Secrets, prepare};
use weft_opt::cost::cost;
use weft_opt::lower::{LowerOptions, lower_condition, lower_with_lines};

use crate::frames;
use crate::schema::{Disk, library, root};
use crate::vectors::{Token, VectorLine, lines, pairs, rows};

#[test]
fn program_vectors_hold_on_every_backend() {
    // A wrong lowering or compilation of a construct would change its meaning. WEFT_PROGRAM selects the tests whose
    // names contain it.
    let only = std::env::var("WEFT_PROGRAM").unwrap_or_default();
    let mut files: Vec<PathBuf> = fs::read_dir(root().join("tests/programs"))
        .expect("the folder is there")
        .map(|entry| entry.expect("the file can be read").path())
        .filter(|path| path.extension().is_some_and(|extension| extension == "weft"))
        .filter(|path| path.to_string_lossy().contains(&only))
        .collect();
    files.sort();
    assert!(!files.is_empty());
    // All failures are reported together; each prints its errors when it happens. These programs take most of the
    // tests' time.
    let next = AtomicUsize::new(0);
    let take = || files.get(next.fetch_add(1, Ordering::Relaxed));
    let failing =
        || iter::from_fn(take).filter(|file| catch_unwind(|| run_file(file)).is_err()).collect::<Vec<_>>();
    let failed: Vec<&PathBuf> = thread::scope(|threads| {
        let n = thread::available_parallelism().map_or(1, NonZeroUsize::get);
        let running: Vec<_> = (0..n).map(|_| threads.spawn(failing)).collect();
        running.into_iter().flat_map(|thread| thread.join().expect("panics are caught")).collect()
    });
    assert!(failed.is_empty(), "these failed: {failed:?}");
}

fn run_file(file: &Path) {
    let text = fs::read_to_string(file).expect("the file can be read");
    let (network, ..) = weft_lang::check(&file.display().to_string(), &mut Disk);
    let protocols = network.map(|network| network.protocols).unwrap_or_default();
    for workers in [1, 4] {
        let chain = Arc::new(chain_of(&file.display().to_string(), workers));
        let mut test = Test::new(file, chain);
        test.protocols.clone_from(&protocols);
        test.run(&lines(&text));
    }
}

#[test]
fn library_and_examples_lower() {
    // An element that a user imports first must not fail.
    for name in ["shop/network.weft", "shop/network2.weft", "mesh/network.weft"] {
        let chain = chain_of(&root().join("examples").join(name).display().to_string(), 2);
        let cost = cost(&chain);
        assert!(cost.elements.iter().all(|element| element.ops.request < 1000), "{cost:?}");
        assert!(cost.elements.iter().any(|element| element.table_bytes > 0));
    }
}

#[test]
fn library_filters_match_examples() {
    // Users copy the example first; one that is refused teaches nothing.
    let mut n_filters = 0;
    for entry in fs::read_dir(library().join("filters")).expect("the folder is there") {
        let path = entry.expect("the file can be read").path();
        let text = fs::read_to_string(&path).expect("the file can be read");
        let header = text.lines().map_while(|line| line.strip_prefix("--"));
        let example: Vec<&str> = header.skip_while(|line| *line != " EXAMPLE").skip(1).collect();
        let name = path.file_name().expect("a file has a name").to_string_lossy().into_owned();
        let program = format!(
            "CREATE TYPE shop FROM PROTO 'cart.proto';
IMPORT 'library/filters/{name}';
CREATE LISTENER frontend ON tcp '127.0.0.1:7070';
CREATE CLUSTER cart TO '127.0.0.1:7101', '127.0.0.1:7102';
{}",
            example.join("\n")
        );
        let (network, diagnostics, sources) = weft_lang::check("main.weft", &mut WithMain(program));
        let told = render_all(&diagnostics, &sources, RenderOptions::default());
        assert!(diagnostics.is_empty(), "{name}:\n{told}");
        let network = network.expect("the program has no errors");
        assert_eq!(network.chains[0].filters.len(), 1, "{name}");
        let program = lower_with_lines(&network, 0, &LowerOptions { workers: 2 }, &sources);
        let inputs = program.expect("the program lowers").request.inputs;
        let n_keys = inputs.iter().filter(|input| matches!(input.place, InputLocation::Key(_))).count();
        assert_eq!(n_keys, network.chains[0].filters[0].policies.n_keys(), "{name}");
        n_filters += 1;
    }
    assert!(n_filters >= 10, "{n_filters}");
}

/// A cost that assumed short values would promise a bound that a peer can break with a long one.
#[test]
fn text_cost_is_of_worst_value() {
    let of = |condition: &str| {
        let text = format!(
            "CREATE TYPE cart FROM PROTO 'cart.proto';\nCREATE LISTENER l ON tcp '127.0.0.1:0';\n\
             CREATE CLUSTER c TO '127.0.0.1:1';\n\
             CREATE ELEMENT e ON rpc (a TEXT, b TEXT) AS\n\
             ON REQUEST IF {condition} THEN ABORT UNAVAILABLE; END IF; END;\n\
             CREATE CHAIN x ON l -> c AS e (a := req.user, b := req.user); END;\n"
        );
        cost(&chain_by(&mut WithMain(text), "main.weft", 1)).elements[0].ns_per_kib.request
    };
    assert_eq!(of("a = 'x' AND a LIKE 'b%'"), 0, "what ends with the shorter value has no cost by the byte");
    let (contains, like) = (of("contains(a, b)"), of("a LIKE '%b%'"));
    assert!(contains >= 6_000 && like >= 6_000, "{contains} {like}");
    assert!(of("contains(a, b) AND a LIKE '%b%'") >= contains + like);
    let long = format!("a LIKE '%b_{}%'", "c".repeat(130));
    assert!(of(&long) >= 3 * of("a LIKE '%b_%'"), "a word for every 64 characters");
}

/// A program in memory, `main.weft`, with all other files from disk.
pub(crate) struct WithMain(pub(crate) String);

impl Resolver for WithMain {
    fn text(&mut self, path: &str, from: Option<&str>) -> Result<String, String> {
        if path == "main.weft" { Ok(self.0.clone()) } else { Disk.text(path, from) }
    }

    fn schema(&mut self, source: &SchemaSource<'_>, from: Option<&str>) -> Result<Schema, SchemaFault> {
        Disk.schema(source, from)
    }

    fn name(&mut self, path: &str, from: Option<&str>) -> String {
        Disk.name(path, from)
    }
}

#[test]
fn scan_cost_grows_with_rows() {
    // A cost that ignored the rows of a scan would promise a wrong bound.
    let of = |name: &str| cost(&chain_of(&root().join("tests/programs").join(name).display().to_string(), 1));
    let (scans, plain) = (of("rows.weft"), of("paper.weft"));
    // CLOSE of the first reads ten rows, with more than five operations each.
    assert!(scans.elements[0].ops.close > 11 * 5, "{scans:?}");
    assert!(plain.elements[0].ops.request < 20, "{plain:?}");
    assert_eq!(of("shared.weft").elements[0].table_bytes, 0);
    assert!(of("shared.weft").shared_table_bytes > 0);
}

#[test]
fn route_needs_true_condition() {
    // A condition that counted NULL as true would send calls to the wrong cluster.
    let file = root().join("tests/programs/condition.weft").display().to_string();
    let (network, ..) = weft_lang::check(&file, &mut Disk);
    let network = network.expect("another test checks this program");
    let chain = lower_condition(&network, 0, &LowerOptions { workers: 2 }).expect("the program lowers");
    assert_eq!(chain.elements[0].name, "route canary");
    let mut test = Test::new(Path::new("condition"), Arc::new(chain));
    let vectors = [
        ("--@ in: open header[x-canary]='1'", "--@ out: forward"),
        ("--@ in: open header[x-canary]='0'", "--@ out: drop"),
        ("--@ in: open", "--@ out: drop"),
    ];
    test.run(
        &vectors
            .map(|(tuple, out)| format!("{tuple}\n{out}"))
            .iter()
            .flat_map(|text| lines(text))
            .collect::<Vec<_>>(),
    );
}

#[test]
fn bucket_lock_is_per_key() {
    // Without the lock two workers would spend one token twice; with one worker it would cost time needlessly.
    let file = root().join("tests/programs/library_token_bucket.weft").display().to_string();
    let locks = |workers: usize| {
        let chain = chain_of(&file, workers);
        assert_eq!(chain.tables[0].spec.shared, workers > 1);
        assert_eq!(chain.tables[0].realisation, Realisation::Striped);
        let request = chain.elements[0].handlers.request.as_ref().expect("the element has a request handler");
        let insts = request.blocks.iter().flat_map(|block| &block.insts);
        let ops: Vec<&Op> = insts.map(|inst| &inst.op).collect();
        let finds = ops.iter().filter(|op| matches!(op, Op::Find(..))).count();
        let by_key = ops.iter().filter(|op| matches!(op, Op::Lock(_, Some(_)))).count();
        let whole = ops.iter().filter(|op| matches!(op, Op::Lock(_, None))).count();
        (finds, by_key, whole)
    };
    assert_eq!(locks(1), (1, 0, 0));
    assert_eq!(locks(4), (1, 1, 0));
}

#[test]
fn changed_key_locks_the_table() {
    // The size is one key before a SET and another after it: with the lock of one, two workers could write the other's
    // row at once.
    let file = root().join("tests/programs/derived.weft").display().to_string();
    let chain = chain_of(&file, 4);
    assert_eq!(chain.tables[0].realisation, Realisation::Locked);
}

#[test]
fn payload_is_rewritten_only_after_set() {
    // A chain that reads messages and changes none would encode each of them.
    let file = root().join("tests/programs/derived.weft").display().to_string();
    let chain = chain_of(&file, 1);
    let n_derived = |nth: usize, event: Event| {
        let element = &chain.elements[nth];
        let handler =
            if event == Event::Request { &element.handlers.request } else { &element.handlers.response };
        let blocks = handler.iter().flat_map(|function| &function.blocks);
        blocks.flat_map(|block| &block.insts).filter(|inst| matches!(inst.op, Op::Derived(_))).count()
    };
    let per_element = |event: Event| [0, 1, 2].map(|nth| n_derived(nth, event) > 0);
    assert_eq!(per_element(Event::Request), [false, true, true]);
    assert_eq!(per_element(Event::Response), [true, false, false]);
}

/// The first chain of a program.
fn chain_of(file: &str, workers: usize) -> ChainProgram {
    chain_by(&mut Disk, file, workers)
}

/// The first chain of a program whose files come from a resolver.
pub(crate) fn chain_by(files: &mut dyn Resolver, file: &str, workers: usize) -> ChainProgram {
    let (network, diagnostics, sources) = weft_lang::check(file, files);
    let show = |diagnostics: &[_]| render_all(diagnostics, &sources, RenderOptions::default());
    let network = network.unwrap_or_else(|| panic!("{}", show(&diagnostics)));
    lower_with_lines(&network, 0, &LowerOptions { workers }, &sources)
        .unwrap_or_else(|diagnostics| panic!("{}", show(&diagnostics)))
}

/// The native functions of a chain, with fixed test keys and reproducible nonces.
fn natives(chain: &ChainProgram) -> Vec<Arc<dyn Prepared>> {
    let key = |decl: &NativeDecl| match decl.options.iter().find(|(name, _)| name.starts_with("key_")) {
        Some((name, Value::Bytes(text))) if name == "key_file" => {
            let path = root().join(String::from_utf8_lossy(text).as_ref());
            Some(fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())))
        }
        Some(_) => Some((0..32).collect()),
        None => None,
    };
    let ready = |decl| {
        let key: Option<Vec<u8>> = key(decl);
        prepare(decl, &Secrets { key: key.as_deref(), entropy: [7; ENTROPY_BYTES] })
            .unwrap_or_else(|error| panic!("{}: {error}", decl.name))
    };
    chain.natives.iter().map(ready).collect()
}

/// A backend with its state.
struct Lane {
    backend: Box<dyn Backend>,
    world: World,
    /// Its compiled programs, one per event, as in a node.
    compiled: RefCell<BTreeMap<Event, Rc<dyn Program>>>,
}

impl Lane {
    fn program(&self, chain: &Arc<ChainProgram>, event: Event, file: &str) -> Rc<dyn Program> {
        let mut compiled = self.compiled.borrow_mut();
        let program = compiled.entry(event).or_insert_with(|| {
            let program = self.backend.compile(chain, event, &self.world.state);
            program.unwrap_or_else(|error| panic!("{file}: {error}")).into()
        });
        program.clone()
    }
}

pub(crate) struct Test {
    file: String,
    chain: Arc<ChainProgram>,
    lanes: Vec<Lane>,
    /// The protocols for building frames.
    protocols: Vec<Protocol>,
    now: Time,
    rand: u64,
    /// The result of the last pass, and which of its rows and edits have been checked.
    last: Option<Last>,
}

struct Last {
    event: Event,
    seen: Observation,
    rows_said: usize,
    edits_said: bool,
    line: usize,
    /// The original frame, and its slots.
    frame: Vec<u8>,
    slots: Vec<Slot>,
}

impl Test {
    pub(crate) fn new(file: &Path, chain: Arc<ChainProgram>) -> Self {
        let backends: [Box<dyn Backend>; 2] =
            [Box::new(Interp), Box::new(Jit::new().expect("the machine is one of Cranelift's"))];
        let world = || World::with_natives(&chain, natives(&chain));
        let lanes = backends.map(|backend| Lane { backend, world: world(), compiled: RefCell::default() });
        let file = file.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        Self { file, chain, lanes: lanes.into(), protocols: Vec::new(), now: Time(0), rand: 0, last: None }
    }

    pub(crate) fn run(&mut self, lines: &[VectorLine]) {
        for line in lines {
            self.line(line);
        }
        self.check_all_said();
        assert!(self.last.is_some(), "{}: no pass", self.file);
    }

    fn line(&mut self, line: &VectorLine) {
        let at = format!("{}:{}", self.file, line.number);
        let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
        let tokens = line.tokens.as_slice();
        match words.as_slice() {
            ["run"] => {
                self.lanes.retain(|lane| tokens.contains(&Token::Word(lane.backend.name().to_owned())))
            }
            ["now"] => self.now = Time(literal(&tokens[0], Type::Interval).word() as i64),
            ["rand"] => self.rand = literal(&tokens[0], Type::Uint(64)).word(),
            ["in"] => self.pass(line),
            ["out"] => assert_eq!(self.verdict(), said(tokens), "{at}"),
            ["set"] => self.check_edits(tokens, &at),
            ["leaves"] => self.check_leaves(tokens, &at),
            ["row", sink] => self.check_row(sink, tokens, &at),
            ["delay"] => {
                let wanted = literal(&tokens[0], Type::Interval);
                assert_eq!(Value::Int(self.last().seen.delay), wanted, "{at}");
            }
            ["mark", what @ ..] => {
                let marks = self.last().seen.marks;
                let seen = match what.first() {
                    None => marks.class().map_or(0, u64::from),
                    Some(&"remaining") => marks.remaining().map_or(0, u64::from),
                    Some(&"deadline") => marks.deadline().map_or(0, |due| (due - self.now).0 as u64),
                    Some(other) => panic!("{at}: MARK has no key {other}"),
                };
                let ty = if what == ["deadline"] { Type::Interval } else { Type::Uint(32) };
                assert_eq!(seen, literal(&tokens[0], ty).word(), "{at}");
            }
            ["mirror"] => {
                let wanted: Vec<Vec<u8>> =
                    tokens.iter().map(|t| bytes(&literal(t, Type::Text(None)))).collect();
                let seen: Vec<_> =
                    self.last().seen.mirrors.iter().map(|(target, _)| target.clone()).collect();
                assert_eq!(seen, wanted, "{at}");
            }
            ["table", name] => self.check_table(name, tokens, &at),
            ["var", name] => {
                let index = self.chain.vars.iter().position(|v| format!("{}.{}", v.owner, v.name) == *name);
                let index = index.unwrap_or_else(|| panic!("{at}: no variable {name}"));
                let parts = &self.last().seen.vars[index];
                let is_merged = self.chain.vars[index].merge.is_some();
                let wanted = literal(&tokens[0], self.chain.vars[index].ty).word();
                // The first part belongs to the worker that runs the passes.
                assert_eq!(parts[0], wanted, "{at}: merged: {is_merged}");
            }
            ["call", name] => {
                let index = self.chain.call.iter().position(|c| format!("{}.{}", c.owner, c.name) == *name);
                let index = index.unwrap_or_else(|| panic!("{at}: no cell {name}"));
                let wanted = seen(&literal(&tokens[0], self.chain.call[index].ty));
                assert_eq!(self.last().seen.call[index], wanted, "{at}");
            }
            ["counters", element] => self.check_counters(element, tokens, &at),
            other => panic!("{at}: {other:?} is unknown"),
        }
    }

    fn last(&self) -> &Last {
        self.last.as_ref().expect("a pass comes first")
    }

    // ---- passes ----

    fn pass(&mut self, line: &VectorLine) {
        self.check_all_said();
        let mut tokens = line.tokens.as_slice();
        let mut next_word = || {
            let (first, rest) = tokens.split_first().expect("the line has a word");
            tokens = rest;
            let Token::Word(word) = first else { panic!("expected a word, not {first:?}") };
            word.clone()
        };
        let event = match next_word().as_str() {
            "open" => Event::Open,
            "request" => Event::OpenRequest,
            "message" => Event::Request,
            "response" => Event::Response,
            "close" => Event::Close,
            "every" => {
                let instance = next_word();
                let element = self
                    .chain
                    .elements
                    .iter()
                    .position(|e| e.name == instance)
                    .expect("the chain has this instance");
                Event::Every(element as u16, next_word().parse().expect("the text is a number"))
            }
            word @ ("timeout" | "evict") => {
                let why = if word == "evict" { RemovalReason::Evicted } else { RemovalReason::Expired };
                let (instance, table) = (next_word(), next_word());
                let is_meant = |(_, departs): &(Event, RowRemoval)| {
                    let decl = &self.chain.tables[usize::from(departs.table.0)];
                    decl.owner == instance && decl.spec.name == table && departs.why == why
                };
                let (event, _) = self.chain.timeouts().find(is_meant).expect("such a handler of the table");
                let pass = self.tuple(event, pairs(tokens), line.number);
                self.run_pass(&pass, line.number);
                let said = &self.last().seen;
                assert!(said.had_expired_row, "{}:{}: no row of `{table}` has left", self.file, line.number);
                return;
            }
            "frame" => {
                let pass = self.frame(tokens, line.number);
                return self.run_pass(&pass, line.number);
            }
            other => panic!("{}:{}: no event {other}", self.file, line.number),
        };
        let pass = self.tuple(event, pairs(tokens), line.number);
        self.run_pass(&pass, line.number);
    }

    /// The pass of a frame: each backend's parser finds the fields; the metadata is given.
    fn frame(&self, tokens: &[Token], line: usize) -> Pass {
        let said = frames::said(&self.protocols, tokens, literal);
        let mut pass = self.tuple(Event::Request, said.known, line);
        pass.regions[REGION_BODY] = said.bytes;
        let found = self.lanes.iter().map(|lane| {
            let parser = lane.program(&self.chain, Event::Parse, &self.file);
            frames::parsed(&self.chain, &*parser, &pass.regions[REGION_BODY])
        });
        let found: Vec<(Vec<Slot>, InputSet)> = found.collect();
        assert!(found.windows(2).all(|pair| pair[0] == pair[1]), "{}:{line}: parsers differ", self.file);
        let inputs = self.chain.request.inputs.iter().enumerate();
        for (at, _) in inputs
            .filter(|(_, input)| matches!(input.place, InputLocation::Frame(_) | InputLocation::Layer(_)))
        {
            pass.slots[at] = found[0].0[at];
            pass.present.set(at, found[0].1.contains(at));
        }
        pass
    }

    fn run_pass(&mut self, pass: &Pass, line: usize) {
        let event = pass.event;
        let mut observations = Vec::new();
        for lane in &mut self.lanes {
            let program = lane.program(&self.chain, event, &self.file);
            observations.push((lane.backend.name(), lane.world.run(&self.chain, &*program, pass)));
        }
        let (_, seen) = observations.remove(0);
        for (backend, mut other) in observations {
            frames::unpatched(&self.chain, (&pass.slots, pass.present), &seen, &mut other);
            assert_eq!(seen, other, "{}:{line}: {backend} differs", self.file);
        }
        let (frame, slots) = (pass.regions[REGION_BODY].clone(), pass.slots.clone());
        self.last = Some(Last { event, seen, rows_said: 0, edits_said: false, line, frame, slots });
    }

    fn tuple(&self, event: Event, mut given: Vec<(String, Token)>, line: usize) -> Pass {
        let mut take = |name: &str| {
            let at = given.iter().position(|(known, _)| known == name)?;
            Some(given.remove(at).1)
        };
        let n_elements = self.chain.elements.len();
        let opened = take("opened").map_or(n_elements, |n| literal(&n, Type::Int(64)).word() as usize);
        let mut pass = Pass {
            event,
            opened,
            now: self.now,
            rand: self.rand,
            slots: Vec::new(),
            present: InputSet::EMPTY,
            regions: Default::default(),
        };
        let inputs = Handler::of(event).direction(&self.chain).map_or(&[][..], |d| &d.inputs);
        for (index, input) in inputs.iter().enumerate() {
            let token = take(&input.name).map(|token| match (&input.place, token) {
                (InputLocation::List(_), Token::Text(text)) => {
                    Token::Word(format!("0x{}", hex(text.as_bytes())))
                }
                (_, token) => token,
            });
            let value = token.map_or_else(|| absent(input), |token| literal(&token, input.ty));
            assert!(
                value != Value::Null || input.nullable,
                "{}:{line}: {} is never NULL",
                self.file,
                input.name
            );
            pass.present.set(index, value != Value::Null);
            let slot = slot(&mut pass, input, &value);
            pass.slots.push(slot);
        }
        assert!(given.is_empty(), "{}:{line}: the chain does not read {given:?}", self.file);
        pass
    }

    // ---- results ----

    fn verdict(&self) -> String {
        let seen = &self.last().seen;
        let text = String::from_utf8_lossy(&seen.text);
        match seen.verdict {
            Verdict::Forward => "forward".to_owned(),
            Verdict::Drop => "drop".to_owned(),
            Verdict::Abort(status) if text.is_empty() => format!("abort {status}"),
            Verdict::Abort(status) => format!("abort {status} '{text}'"),
            Verdict::Reply => "reply".to_owned(),
            Verdict::Redirect => format!("redirect '{text}'"),
            Verdict::Failed(fault) => format!("failed '{}'", fault.name()),
        }
    }

    fn check_edits(&mut self, tokens: &[Token], at: &str) {
        let last = self.last.as_mut().expect("a pass comes first");
        last.edits_said = true;
        let inputs = Handler::of(last.event).direction(&self.chain).map_or(&[][..], |d| &d.inputs);
        let mut edits: Vec<(String, Observed)> = last
            .seen
            .edits
            .iter()
            .filter(|(to, _)| !matches!(to, EditTarget::HeaderChange(_)))
            .map(|(to, value)| (target(&self.chain, inputs, *to).0, value.clone()))
            .collect();
        // A value that the test does not specify.
        for (edit, (_, wanted)) in edits.iter_mut().zip(pairs(tokens)) {
            if wanted == Token::Word("_".to_owned()) {
                edit.1 = Observed::Null;
            }
        }
        let wanted: Vec<(String, Observed)> = pairs(tokens)
            .into_iter()
            .map(|(name, value)| {
                let ty =
                    type_of(&self.chain, inputs, &name).unwrap_or_else(|| panic!("{at}: no place {name}"));
                let is_said = value != Token::Word("_".to_owned());
                (name, if is_said { seen(&literal(&value, ty)) } else { Observed::Null })
            })
            .collect();
        assert_eq!(edits, wanted, "{at}");
    }

    /// Checks the frame that leaves, built from its definitions without the code of PUSH and POP.
    fn check_leaves(&mut self, tokens: &[Token], at: &str) {
        let wanted = frames::said(&self.protocols, tokens, literal).bytes;
        let last = self.last.as_mut().expect("a pass comes first");
        last.edits_said = true;
        let left = frames::reshaped(&self.chain, &last.seen.edits, &last.slots, &last.frame);
        assert_eq!(left, wanted, "{at}: {left:02x?}");
    }

    fn check_row(&mut self, sink: &str, tokens: &[Token], at: &str) {
        let last = self.last.as_mut().expect("a pass comes first");
        for row in rows(tokens) {
            let (of, cells) =
                &last.seen.rows.get(last.rows_said).unwrap_or_else(|| panic!("{at}: no such row"));
            let decl = &self.chain.sinks[usize::from(*of)];
            assert_eq!(decl.name, sink, "{at}");
            let types = decl.columns.iter().map(|column| column.ty);
            let wanted: Vec<Observed> =
                row.iter().zip(types).map(|(token, ty)| seen(&literal(token, ty))).collect();
            assert_eq!(*cells, wanted, "{at}");
            last.rows_said += 1;
        }
    }

    fn check_table(&self, name: &str, tokens: &[Token], at: &str) {
        let full = |owner: &str, name: &str| {
            if owner.is_empty() { name.to_owned() } else { format!("{owner}.{name}") }
        };
        let index = self.chain.tables.iter().position(|t| full(&t.owner, &t.spec.name) == name);
        let index = index.unwrap_or_else(|| panic!("{at}: no table {name}"));
        let spec = &self.chain.tables[index].spec;
        let types: Vec<Type> = spec.key.iter().chain(&spec.columns).map(|column| column.ty).collect();
        let mut found = self.last().seen.tables[index].clone();
        found.sort();
        let mut wanted: Vec<Vec<Observed>> = rows(tokens)
            .iter()
            .map(|row| row.iter().zip(&types).map(|(token, ty)| seen(&literal(token, *ty))).collect())
            .collect();
        wanted.sort();
        assert_eq!(found, wanted, "{at}");
    }

    fn check_counters(&self, element: &str, tokens: &[Token], at: &str) {
        let index = self.chain.elements.iter().position(|e| e.name == element);
        let counters = self.last().seen.counters[index.unwrap_or_else(|| panic!("{at}: no {element}"))];
        for (name, value) in pairs(tokens) {
            let found = match name.as_str() {
                "seen" => counters.seen,
                "dropped" => counters.dropped,
                "aborted" => counters.aborted,
                "diverted" => counters.diverted,
                "failed" => counters.failed,
                other => panic!("{at}: no counter {other}"),
            };
            assert_eq!(found, literal(&value, Type::Uint(64)).word(), "{at}: {name}");
        }
    }

    /// Checks that all rows and edits of a pass have been mentioned before the next.
    fn check_all_said(&self) {
        let Some(last) = &self.last else { return };
        let at = format!("{}:{}", self.file, last.line);
        assert_eq!(
            last.rows_said,
            last.seen.rows.len(),
            "{at}: rows that the test does not say: {:?}",
            last.seen.rows
        );
        let is_said = last.edits_said || last.seen.edits.is_empty();
        assert!(is_said, "{at}: changes that the test does not say: {:?}", last.seen.edits);
    }
}

/// The verdict in a line's syntax.
fn said(tokens: &[Token]) -> String {
    let word = |token: &Token| match token {
        Token::Word(word) => word.clone(),
        Token::Text(text) => format!("'{text}'"),
        Token::Sign(sign) => sign.to_string(),
    };
    let said = tokens.iter().map(word).collect::<Vec<_>>().join(" ");
    let fault = said.strip_prefix("failed '").and_then(|rest| rest.strip_suffix('\''));
    assert!(fault.is_none_or(|name| Fault::ALL.iter().any(|f| f.name() == name)), "no fault {said}");
    said
}

/// The name of the fragment length in a vector.
const FRAGMENT: &str = "fragment";

/// The name and the type of an edit's target.
fn target(chain: &ChainProgram, inputs: &[Input], target: EditTarget) -> (String, Type) {
    match target {
        EditTarget::Input(at) => (inputs[usize::from(at)].name.clone(), inputs[usize::from(at)].ty),
        EditTarget::Answer(at) => {
            (format!("answer[{}]", chain.answers[usize::from(at)].name), Type::Text(None))
        }
        EditTarget::Reply(at) => {
            let field = &chain.replies[usize::from(at)];
            (format!("reply[{}]", field.path.join(".")), field.ty)
        }
        // Of a FRAGMENT; `leaves` checks other changes of structure.
        EditTarget::Part(_) => (FRAGMENT.to_owned(), Type::Uint(32)),
        EditTarget::HeaderChange(_) => unreachable!("its value has said what it does"),
    }
}

fn type_of(chain: &ChainProgram, inputs: &[Input], name: &str) -> Option<Type> {
    let inputs_targets = (0..inputs.len()).map(|at| EditTarget::Input(at as u16));
    let answers = (0..chain.answers.len()).map(|at| EditTarget::Answer(at as u16));
    let replies = (0..chain.replies.len()).map(|at| EditTarget::Reply(at as u16));
    let all = inputs_targets.chain(answers).chain(replies);
    if name == FRAGMENT {
        return Some(Type::Uint(32));
    }
    all.map(|at| target(chain, inputs, at)).find(|(known, _)| known == name).map(|(_, ty)| ty)
}

/// The value of a column that a vector does not mention: NULL if possible, else the zero of its type.
fn absent(input: &Input) -> Value {
    if input.nullable { Value::Null } else { weft_lang::types::zero(input.ty) }
}

/// A list in the syntax of vectors: elements between semicolons, members between blanks. A member is an integer, `f`
/// and a float, `-` if absent, `~` and a text, or else the text itself. `#` and a number stand for too many elements,
/// without any.
fn list(text: &str) -> Vec<u8> {
    let mut out = Vec::new();
    if let Some(n) = text.strip_prefix('#') {
        weft_core::list::write(n.parse().expect("the text is a number"), iter::empty(), &mut out);
        return out;
    }
    let elements: Vec<&str> = text.split(';').map(str::trim).filter(|element| !element.is_empty()).collect();
    let words: Vec<&str> = elements.iter().flat_map(|element| element.split(' ')).collect();
    let cells = words.iter().map(|word| match (word.parse::<i64>(), word.strip_prefix('f')) {
        _ if *word == "-" => ListCell::Absent,
        (Ok(n), _) => ListCell::Number(n as u64),
        (_, Some(float)) if float.parse::<f64>().is_ok() => {
            ListCell::Number(float.parse::<f64>().expect("asked before").to_bits())
        }
        _ => ListCell::Bytes(word.strip_prefix('~').unwrap_or(word).as_bytes()),
    });
    weft_core::list::write(elements.len() as u64, cells, &mut out);
    out
}

fn slot(pass: &mut Pass, input: &Input, value: &Value) -> Slot {
    let Value::Bytes(bytes) = value else { return Slot { a: value.word(), b: 0 } };
    let listed;
    let bytes = match &input.place {
        InputLocation::List(_) => {
            listed = list(&String::from_utf8_lossy(bytes));
            &listed
        }
        _ => bytes,
    };
    let region = &mut pass.regions[input.place.region()];
    let at = region.len();
    region.extend_from_slice(bytes);
    Slot { a: at as u64, b: bytes.len() as u64 }
}

// ---- values ----

/// The value of a token for a type.
pub(crate) fn literal(token: &Token, ty: Type) -> Value {
    let value = match token {
        Token::Word(word) if word == "NULL" => Some(Value::Null),
        Token::Text(text) => read_text(text, weft_lang::types::without_length(ty)).ok(),
        Token::Word(word) => match ty.repr() {
            Repr::Bool => word.to_lowercase().parse().ok().map(Value::Bool),
            Repr::Float => word.parse().ok().map(Value::Float),
            Repr::Int if ty == Type::Status => {
                Status::from_name(word).map(|s| Value::Int(i64::from(s.code())))
            }
            Repr::Int => {
                let unsigned = || word.parse::<u64>().ok().map(|n| n as i64);
                word.parse().ok().or_else(unsigned).map(Value::Int)
            }
            Repr::Bytes => word.strip_prefix("0x").and_then(unhex).map(Value::Bytes),
        },
        Token::Sign(_) => None,
    };
    value.unwrap_or_else(|| panic!("{token:?} is not of type {ty}"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(digits: &str) -> Option<Vec<u8>> {
    let byte = |at: usize| u8::from_str_radix(digits.get(at..at + 2)?, 16).ok();
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn bytes(value: &Value) -> Vec<u8> {
    if let Value::Bytes(bytes) = value { bytes.clone() } else { Vec::new() }
}

fn seen(value: &Value) -> Observed {
    match value {
        Value::Null => Observed::Null,
        Value::Bytes(bytes) => Observed::Bytes(bytes.clone()),
        other => Observed::Word(other.word()),
    }
}
