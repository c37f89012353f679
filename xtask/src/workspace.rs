//! The workspace as `cargo metadata` describes it.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The parts of `cargo metadata` that the commands use.
#[derive(Debug)]
pub(crate) struct Workspace {
    /// The folder of the workspace manifest.
    pub(crate) root: PathBuf,
    /// The folder for build output.
    pub(crate) target: PathBuf,
    /// The members, in cargo's order.
    pub(crate) packages: Vec<Package>,
}

/// A member of the workspace.
#[derive(Debug)]
pub(crate) struct Package {
    /// Its name.
    pub(crate) name: String,
    /// The folder of its manifest.
    pub(crate) folder: PathBuf,
    /// The root source file of each of its targets: library, programs, tests, build script.
    pub(crate) roots: Vec<PathBuf>,
    /// Its direct dependencies.
    pub(crate) dependencies: Vec<Dependency>,
}

/// A direct dependency of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Dependency {
    /// The name of the package depended on.
    pub(crate) name: String,
    /// Whether only tests and benches use it.
    pub(crate) is_dev: bool,
}

impl Workspace {
    /// Runs `cargo metadata`. Fails if cargo cannot be started or does not accept the manifests.
    pub(crate) fn load() -> Result<Self, String> {
        let output = Command::new(cargo())
            .args(["metadata", "--format-version=1", "--no-deps"])
            .output()
            .map_err(|error| format!("cannot start cargo: {error}"))?;
        if !output.status.success() {
            return Err(String::from_utf8_lossy(&output.stderr).trim_end().to_owned());
        }
        let json =
            serde_json::from_slice(&output.stdout).map_err(|error| format!("cargo metadata: {error}"))?;
        Ok(Self::from_json(&json))
    }

    /// Reads the output of `cargo metadata`. Missing parts read as empty.
    pub(crate) fn from_json(json: &Value) -> Self {
        Self {
            root: path(&json["workspace_root"]),
            target: path(&json["target_directory"]),
            packages: list(&json["packages"]).iter().map(package).collect(),
        }
    }
}

/// The cargo that started this program, so that a chosen toolchain stays chosen.
pub(crate) fn cargo() -> String {
    std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned())
}

fn package(json: &Value) -> Package {
    let manifest = path(&json["manifest_path"]);
    Package {
        name: text(&json["name"]),
        folder: manifest.parent().unwrap_or(Path::new("")).to_owned(),
        roots: list(&json["targets"]).iter().map(|target| path(&target["src_path"])).collect(),
        dependencies: list(&json["dependencies"])
            .iter()
            .map(|dependency| Dependency {
                name: text(&dependency["name"]),
                is_dev: dependency["kind"] == "dev",
            })
            .collect(),
    }
}

fn list(json: &Value) -> &[Value] {
    json.as_array().map_or(&[], Vec::as_slice)
}

fn text(json: &Value) -> String {
    json.as_str().unwrap_or_default().to_owned()
}

fn path(json: &Value) -> PathBuf {
    PathBuf::from(text(json))
}
