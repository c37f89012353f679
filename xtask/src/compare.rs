//! Compares this build's instruction counts with those stored in the repository.
//!
//! Wall time on a shared machine says little. Counts under valgrind repeat within a fraction of a per cent, so a change
//! that makes a message or a packet more expensive shows in its own commit. Counts depend on the compiler; the file
//! states its version.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::process::Command;

use serde_json::{Value, json};

use crate::workspace::Workspace;

/// The file of the stored counts.
const STORED: &str = "benches/instructions.json";
/// The permitted increase of a count.
const SLACK: f64 = 0.02;

/// Counts by name.
pub(crate) type Counts = BTreeMap<String, f64>;

/// The stored counts.
///
/// # Errors
/// The file cannot be read.
pub(crate) fn stored(root: &Path) -> Result<Counts, String> {
    read(&root.join(STORED)).map(|stored| counts(&stored["instructions"]))
}

fn read(path: &Path) -> Result<Value, String> {
    let text = fs::read_to_string(path).map_err(|error| format!("{}: {error}", path.display()))?;
    serde_json::from_str(&text).map_err(|error| format!("{STORED}: {error}"))
}

/// Compares the counts, or stores those of this build with `--update`. Returns false if a count is too high.
pub(crate) fn run(workspace: &Workspace, args: &[String]) -> Result<bool, String> {
    let is_update = match args {
        [] => false,
        [word] if word == "--update" => true,
        _ => return Err("it is written `cargo xtask bench-compare [--update]`".to_owned()),
    };
    let (path, compiler) = (workspace.root.join(STORED), compiler()?);
    let now = counted(workspace)?;
    if is_update {
        let text = format!("{:#}\n", json!({ "compiler": compiler, "instructions": now }));
        fs::write(&path, text).map_err(|error| format!("{}: {error}", path.display()))?;
        println!("stored {} counts in {STORED}", now.len());
        return Ok(true);
    }
    let stored = read(&path)?;
    if stored["compiler"] != compiler.as_str() {
        println!(
            "these counts are of {}, and this is {compiler}: differences may be its own",
            stored["compiler"]
        );
    }
    let comparison = compare(&counts(&stored["instructions"]), &now);
    comparison.lines.iter().for_each(|line| println!("{line}"));
    println!("{} counts, {} higher by more than {:.0} %", now.len(), comparison.n_higher, SLACK * 100.0);
    Ok(comparison.n_higher == 0)
}

/// The result of a comparison.
struct Comparison {
    /// For people: each count that changed by more than the slack, is new, or is missing.
    lines: Vec<String>,
    n_higher: usize,
}

fn compare(stored: &Counts, now: &Counts) -> Comparison {
    let (mut lines, mut n_higher) = (Vec::new(), 0);
    for (name, count) in now {
        let Some(before) = stored.get(name).filter(|before| **before > 0.0) else {
            lines.push(format!("{name}: {count:.0}, new"));
            continue;
        };
        let change = count / before - 1.0;
        n_higher += usize::from(change > SLACK);
        if change.abs() > SLACK {
            let word = if change > 0.0 { "HIGHER" } else { "lower: store it with --update" };
            lines.push(format!("{name}: {before:.0} -> {count:.0}, {:+.1} %, {word}", change * 100.0));
        }
    }
    lines
        .extend(stored.keys().filter(|name| !now.contains_key(*name)).map(|name| format!("{name}: missing")));
    Comparison { lines, n_higher }
}

/// Counts the instructions of the release build.
fn counted(workspace: &Workspace) -> Result<Counts, String> {
    let program = workspace.target.join("release/weft");
    let done = Command::new(&program)
        .args(["bench", "instructions", "--json"])
        .stderr(std::process::Stdio::inherit())
        .output()
        .map_err(|error| format!("cannot start {}: {error}", program.display()))?;
    if !done.status.success() {
        return Err("the counts were not made".to_owned());
    }
    let report: Value =
        serde_json::from_slice(&done.stdout).map_err(|error| format!("weft bench instructions: {error}"))?;
    let rows = report["rows"].as_array().map(Vec::as_slice).unwrap_or_default();
    let row = |row: &Value| Some((row["name"].as_str()?.to_owned(), row["value"].as_f64()?.round()));
    Ok(rows.iter().filter_map(row).collect())
}

fn counts(json: &Value) -> Counts {
    let entries = json.as_object().into_iter().flatten();
    entries.filter_map(|(name, count)| Some((name.clone(), count.as_f64()?))).collect()
}

fn compiler() -> Result<String, String> {
    let done = Command::new("rustc").arg("--version").output();
    let done = done.map_err(|error| format!("cannot start rustc: {error}"))?;
    Ok(String::from_utf8_lossy(&done.stdout).trim().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn higher_cost_is_reported() {
        // If this failed, the gate would pass a slower build, or fail for a faster one and be switched off.
        let counts =
            |list: &[(&str, f64)]| list.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect::<Counts>();
        let stored = counts(&[("a", 1000.0), ("b", 1000.0), ("c", 1000.0), ("gone", 5.0)]);
        let now = counts(&[("a", 1019.0), ("b", 1021.0), ("c", 900.0), ("new", 7.0)]);
        let found = compare(&stored, &now);
        assert_eq!(found.n_higher, 1);
        let expected = [
            "b: 1000 -> 1021, +2.1 %, HIGHER",
            "c: 1000 -> 900, -10.0 %, lower: store it with --update",
            "new: 7, new",
            "gone: missing",
        ];
        assert_eq!(found.lines, expected);
    }
}
