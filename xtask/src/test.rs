//! All checks of CI, step by step, with a summary at the end.

use std::fs;
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::book;
use crate::library_folder::{self, library_folder};
use crate::tidy;
use crate::workspace::{Workspace, cargo};

/// The duration of each fuzz target, in seconds.
const FUZZ_SECONDS: u32 = 6;

/// The result of a step.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    /// Not run, for this reason.
    Skipped(String),
}

impl From<bool> for Outcome {
    fn from(passed: bool) -> Self {
        if passed { Self::Passed } else { Self::Failed }
    }
}

/// The steps' input for the summary.
struct Context<'a> {
    workspace: &'a Workspace,
    results: Results,
}

type Step = fn(&mut Context<'_>) -> Result<Outcome, String>;

const STEPS: &[(&str, Step)] = &[
    ("format", format),
    ("tidy", |context| tidy::run(context.workspace).map(Outcome::from)),
    ("clippy", clippy),
    ("tests", tests),
    ("doc tests", doc_tests),
    ("docs", docs),
    ("programs", programs),
    ("renamed", renamed),
    ("fuzz", fuzz),
];

/// Runs every step, or the named ones, even after a failure. Returns true if none failed.
pub(crate) fn run(workspace: &Workspace, names: &[String]) -> Result<bool, String> {
    let steps = steps(names)?;
    let mut context = Context { workspace, results: Results::default() };
    let mut ended = Vec::new();
    for (name, step) in steps {
        println!("== {name}");
        let start = Instant::now();
        let outcome = step(&mut context).unwrap_or_else(|error| {
            println!("{name}: {error}");
            Outcome::Failed
        });
        ended.push((*name, outcome, start.elapsed()));
    }
    print!("\n{}", summary(&ended, &context.results));
    Ok(ended.iter().all(|(_, outcome, _)| *outcome != Outcome::Failed))
}

/// The steps with these names in their order; without names, all.
fn steps(names: &[String]) -> Result<Vec<&'static (&'static str, Step)>, String> {
    if let Some(unknown) = names.iter().find(|name| STEPS.iter().all(|(known, _)| known != name)) {
        let known: Vec<&str> = STEPS.iter().map(|(name, _)| *name).collect();
        return Err(format!("there is no step `{unknown}`; there are {}", known.join(", ")));
    }
    let is_wanted = |name: &str| names.is_empty() || names.iter().any(|wanted| wanted == name);
    Ok(STEPS.iter().filter(|(name, _)| is_wanted(name)).collect())
}

fn format(context: &mut Context<'_>) -> Result<Outcome, String> {
    if !has_component(context, "fmt") {
        return Ok(Outcome::Skipped("`rustup component add rustfmt` would enable it".to_owned()));
    }
    succeeds(context, &["fmt", "--all", "--check"], &[])
}

fn clippy(context: &mut Context<'_>) -> Result<Outcome, String> {
    if !has_component(context, "clippy") {
        return Ok(Outcome::Skipped("`rustup component add clippy` would enable it".to_owned()));
    }
    succeeds(context, &["clippy", "--locked", "--workspace", "--all-targets", "--", "-D", "warnings"], &[])
}

fn tests(context: &mut Context<'_>) -> Result<Outcome, String> {
    let targets =
        ["test", "--locked", "--workspace", "--lib", "--bins", "--tests", "--examples", "--no-fail-fast"];
    cargo_test(context, &targets)
}

fn doc_tests(context: &mut Context<'_>) -> Result<Outcome, String> {
    cargo_test(context, &["test", "--locked", "--workspace", "--doc", "--no-fail-fast"])
}

fn docs(context: &mut Context<'_>) -> Result<Outcome, String> {
    succeeds(context, &["doc", "--locked", "--workspace", "--no-deps"], &[("RUSTDOCFLAGS", "-D warnings")])
}

/// `weft check` accepts the library, the examples and the whole programs in the docs.
fn programs(context: &mut Context<'_>) -> Result<Outcome, String> {
    if succeeds(context, &["build", "--locked", "-p", "weft"], &[])? == Outcome::Failed {
        return Ok(Outcome::Failed);
    }
    let weft = context.workspace.target.join("debug/weft");
    let help =
        Command::new(&weft).arg("help").output().map_err(|error| format!("{}: {error}", weft.display()))?;
    if !String::from_utf8_lossy(&help.stdout).contains("check") {
        return Ok(Outcome::Skipped("`weft` has no `check`".to_owned()));
    }
    let root = &context.workspace.root;
    let mut paths = Vec::new();
    for folder in [library_folder(root), root.join("examples"), root.join("benches")] {
        collect_programs(&folder, &mut paths)?;
    }
    paths.extend(extract_doc_programs(context.workspace)?);
    let mut all_passed = true;
    for path in &paths {
        let status = Command::new(&weft).arg("check").arg(path).current_dir(root).status();
        let passed = status.map_err(|error| error.to_string())?.success();
        if !passed {
            println!("{}: refused by `weft check`", path.display());
        }
        all_passed &= passed;
    }
    println!("programs: {} checked", paths.len());
    Ok(all_passed.into())
}

/// Runs the program tests on a copy of the library in a folder of another name. They must fail without the copy, which
/// proves that they read it.
fn renamed(context: &mut Context<'_>) -> Result<Outcome, String> {
    let folder = context.workspace.target.join("renamed").join("shelf");
    let describe = |error: std::io::Error| format!("{}: {error}", folder.display());
    for (import, text) in book::library(&context.workspace.root)? {
        let path = folder.join(import.trim_start_matches("library/"));
        fs::create_dir_all(path.parent().expect("it is in the folder")).map_err(describe)?;
        fs::write(&path, text).map_err(describe)?;
    }
    let name = folder.display().to_string();
    let args = ["test", "-q", "--locked", "-p", "weft-opt", "--test", "it", "programs::"];
    let passed = succeeds(context, &args, &[(library_folder::VARIABLE, &name)])?;
    fs::remove_dir_all(&folder).map_err(describe)?;
    let without = Command::new(cargo())
        .args(args)
        .env(library_folder::VARIABLE, &folder)
        .current_dir(&context.workspace.root)
        .output()
        .map_err(describe)?;
    let reads_another = without.status.success();
    if reads_another {
        println!("renamed: the tests pass without the folder that {} names", library_folder::VARIABLE);
    }
    Ok((passed == Outcome::Passed && !reads_another).into())
}

/// Runs each fuzz target for a few seconds, if the toolchain supports it.
fn fuzz(context: &mut Context<'_>) -> Result<Outcome, String> {
    let folder = context.workspace.root.join("fuzz");
    if !folder.join("Cargo.toml").exists() {
        return Ok(Outcome::Skipped("there is no fuzz/".to_owned()));
    }
    let list = Command::new("cargo").args(["+nightly", "fuzz", "list"]).current_dir(&folder).output();
    let Some(list) = list.ok().filter(|output| output.status.success()) else {
        return Ok(Outcome::Skipped("needs a nightly toolchain and cargo-fuzz".to_owned()));
    };
    let seconds =
        std::env::var("FUZZ_SECONDS").ok().and_then(|text| text.parse().ok()).unwrap_or(FUZZ_SECONDS);
    let mut all_passed = true;
    for target in String::from_utf8_lossy(&list.stdout).split_whitespace() {
        let time = format!("-max_total_time={seconds}");
        let status = Command::new("cargo")
            .args([
                "+nightly",
                "fuzz",
                "run",
                "--features=libfuzzer",
                "-a",
                target,
                "--",
                &time,
                "-verbosity=0",
            ])
            .current_dir(&folder)
            .status();
        let passed = status.map_err(|error| error.to_string())?.success();
        println!("fuzz {target}: {}", if passed { "ok" } else { "FAILED" });
        all_passed &= passed;
    }
    Ok(all_passed.into())
}

fn has_component(context: &Context<'_>, command: &str) -> bool {
    let version =
        Command::new(cargo()).args([command, "--version"]).current_dir(&context.workspace.root).output();
    version.is_ok_and(|output| output.status.success())
}

fn succeeds(context: &Context<'_>, args: &[&str], env: &[(&str, &str)]) -> Result<Outcome, String> {
    let status = Command::new(cargo())
        .args(args)
        .envs(env.iter().copied())
        .current_dir(&context.workspace.root)
        .status()
        .map_err(|error| format!("cannot start cargo: {error}"))?;
    Ok(status.success().into())
}

/// Runs `cargo test`, forwards its output, and keeps its result lines.
fn cargo_test(context: &mut Context<'_>, args: &[&str]) -> Result<Outcome, String> {
    let describe = |error: std::io::Error| format!("cannot run cargo test: {error}");
    // One pipe for both outputs: the name of the test binary goes to one of them, and its results to the other.
    let (reader, writer) = std::io::pipe().map_err(describe)?;
    let mut child = Command::new(cargo())
        .args(args)
        .current_dir(&context.workspace.root)
        .stdin(Stdio::null())
        .stderr(writer.try_clone().map_err(describe)?)
        .stdout(writer)
        .spawn()
        .map_err(describe)?;
    for line in BufReader::new(reader).lines() {
        let line = line.map_err(describe)?;
        println!("{line}");
        context.results.line(&line);
    }
    let passed = child.wait().map_err(describe)?.success();
    Ok(passed.into())
}

/// The results in the output of `cargo test`.
#[derive(Default)]
struct Results {
    what: String,
    /// The `test result:` lines, each after its test binary.
    results: Vec<String>,
    /// The failed tests, each after its test binary.
    failed: Vec<String>,
}

impl Results {
    fn line(&mut self, line: &str) {
        let line = line.trim();
        if let Some(running) = line.strip_prefix("Running ") {
            self.what = tested(running);
        } else if let Some(name) = line.strip_prefix("Doc-tests ") {
            self.what = format!("{name} docs");
        } else if line.starts_with("test result:") && !line.contains(" 0 passed; 0 failed; 0 ignored") {
            self.results.push(format!("{:<22} {line}", self.what));
        } else if let Some(test) =
            line.strip_prefix("test ").and_then(|test| test.strip_suffix(" ... FAILED"))
        {
            self.failed.push(format!("{}: {test}", self.what));
        }
    }
}

/// `shop e2e`, from `tests/e2e.rs (target/debug/deps/e2e-0123)` of cargo's `Running` line.
fn tested(running: &str) -> String {
    let (source, program) = running.split_once(" (").unwrap_or((running, ""));
    let program = Path::new(program.trim_end_matches(')')).file_name().unwrap_or_default().to_string_lossy();
    let name = program.rsplit_once('-').map_or(&*program, |(name, _)| name);
    match source.strip_prefix("unittests ") {
        Some(_) => name.to_owned(),
        None => format!("{name} ({source})"),
    }
}

fn collect_programs(folder: &Path, paths: &mut Vec<std::path::PathBuf>) -> Result<(), String> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    let mut found: Vec<_> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
    found.sort();
    for path in found {
        if path.is_dir() {
            collect_programs(&path, paths)?;
        } else if path.extension().is_some_and(|extension| extension == "weft") {
            paths.push(path);
        }
    }
    Ok(())
}

/// Writes the programs in the docs to files beside links to their possible imports.
fn extract_doc_programs(workspace: &Workspace) -> Result<Vec<std::path::PathBuf>, String> {
    let programs = tidy::doc_programs(&workspace.root)?;
    let folder = workspace.target.join("doc-programs");
    let describe = |error: std::io::Error| format!("{}: {error}", folder.display());
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).map_err(describe)?;
    let examples = workspace.root.join("examples");
    for (name, target) in [("library", library_folder(&workspace.root)), ("examples", examples)] {
        std::os::unix::fs::symlink(target, folder.join(name)).map_err(describe)?;
    }
    programs
        .into_iter()
        .map(|(name, text)| {
            let path = folder.join(name);
            fs::write(&path, text).map_err(describe)?;
            Ok(path)
        })
        .collect()
}

/// The summary of a run. Failures come last, where they are at the end of a log.
fn summary(ended: &[(&str, Outcome, Duration)], results: &Results) -> String {
    let mut text = String::new();
    for result in &results.results {
        text += &format!("{result}\n");
    }
    for (name, outcome, time) in ended {
        let outcome = match outcome {
            Outcome::Passed => "ok".to_owned(),
            Outcome::Failed => "FAILED".to_owned(),
            Outcome::Skipped(reason) => format!("skipped: {reason}"),
        };
        text += &format!("{name:<10} {:>7.1} s  {outcome}\n", time.as_secs_f64());
    }
    let total: Duration = ended.iter().map(|(_, _, time)| *time).sum();
    let n_failed = ended.iter().filter(|(_, outcome, _)| *outcome == Outcome::Failed).count();
    text += &format!("{:<10} {:>7.1} s  ", "all", total.as_secs_f64());
    text += &if n_failed == 0 { "ok\n".to_owned() } else { format!("{n_failed} FAILED\n") };
    for test in &results.failed {
        text += &format!("FAILED {test}\n");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_names_its_test_binary() {
        // If this failed, the end of a run would not say which crate's tests failed.
        let mut results = Results::default();
        let result =
            "test result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s";
        for line in [
            "     Running unittests src/lib.rs (/t/debug/deps/shop-9a)",
            result,
            "     Running tests/e2e.rs (/t/debug/deps/e2e-0b)",
            result,
            "test carts::are_kept ... FAILED",
            "   Doc-tests shop",
            "test result: ok. 0 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.00s",
        ] {
            results.line(line);
        }
        let whats: Vec<&str> =
            results.results.iter().map(|line| line.split("test result").next().unwrap().trim()).collect();
        assert_eq!(whats, ["shop", "e2e (tests/e2e.rs)"]);
        assert_eq!(results.failed, ["e2e (tests/e2e.rs): carts::are_kept"]);
    }

    #[test]
    fn step_is_found_by_name() {
        // If this failed, a misspelt step would look as if it had passed.
        let names = |wanted: &[&str]| {
            let wanted: Vec<String> = wanted.iter().map(|name| (*name).to_owned()).collect();
            steps(&wanted).map(|steps| steps.iter().map(|(name, _)| *name).collect::<Vec<_>>())
        };
        assert_eq!(names(&[]).map(|all| all.len()), Ok(STEPS.len()));
        assert_eq!(names(&["doc tests", "tidy"]), Ok(vec!["tidy", "doc tests"]));
        assert!(names(&["tidi"]).is_err());
    }

    #[test]
    fn failed_step_comes_last() {
        // If this failed, a reader of the end of the log would take a failed run for a good one.
        let time = Duration::from_millis(1500);
        let skipped = Outcome::Skipped("no nightly".to_owned());
        let steps =
            [("format", Outcome::Passed, time), ("tests", Outcome::Failed, time), ("fuzz", skipped, time)];
        let mut results = Results::default();
        for line in
            ["     Running unittests src/lib.rs (/t/shop-9a)", "test x ... FAILED", "test result: FAILED."]
        {
            results.line(line);
        }
        let text = summary(&steps, &results);
        assert!(text.contains("fuzz           1.5 s  skipped: no nightly\n"), "{text}");
        assert!(text.contains("all            4.5 s  1 FAILED\n"), "{text}");
        assert!(text.contains("test result: FAILED.\n"), "{text}");
        assert!(text.ends_with("FAILED shop: x\n"), "{text}");
    }
}
