//! Checks the licences of all dependencies against deny.toml, for machines without cargo-deny.

use serde_json::Value;
use std::process::Command;

/// Fails with every crate whose licence is not allowed.
pub(crate) fn check() {
    let allowed = allowed_licences(include_str!("../../deny.toml"));
    assert!(allowed.len() > 2, "deny.toml lists no licences: {allowed:?}");
    let metadata = metadata();
    let packages = metadata["packages"].as_array().expect("packages");
    let refused = packages.iter().filter(|package| {
        let licence = package["license"].as_str().unwrap_or("");
        !is_allowed(licence, &allowed)
    });
    let names: Vec<String> =
        refused.map(|package| format!("{} {}", package["name"], package["license"])).collect();
    assert!(
        names.is_empty(),
        "not in deny.toml: {names:?}; take another crate, or allow the licence there with a reason"
    );
}

/// The dependencies for this machine's platform.
fn metadata() -> Value {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".into());
    let version = Command::new("rustc").arg("-vV").output().expect("rustc runs").stdout;
    let version = String::from_utf8(version).expect("text");
    let host = version.lines().find_map(|line| line.strip_prefix("host: ")).expect("rustc names its host");
    let output = Command::new(cargo)
        .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", host])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo metadata runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("cargo metadata gives JSON")
}

/// The strings of `allow = [ … ]` in the licences section.
fn allowed_licences(deny: &str) -> Vec<&str> {
    let section = deny.split("[licenses]").nth(1).unwrap_or("");
    let list = section.split("allow = [").nth(1).and_then(|rest| rest.split(']').next()).unwrap_or("");
    list.split('"').skip(1).step_by(2).collect()
}

/// An SPDX expression without brackets deeper than one; `/` is the old way to write OR.
fn is_allowed(expression: &str, allowed: &[&str]) -> bool {
    let expression = expression.replace('/', " OR ");
    let all_of =
        |part: &str| part.split(" AND ").all(|name| allowed.contains(&name.trim().trim_matches(['(', ')'])));
    match expression.contains('(') {
        true => {
            expression.split(" AND ").all(|part| part.trim_matches(['(', ')', ' ']).split(" OR ").any(all_of))
        }
        false => expression.split(" OR ").any(all_of),
    }
}

#[test]
fn expressions() {
    let allowed = ["MIT", "Unicode-3.0", "Apache-2.0"];
    for good in ["MIT", "MIT OR X", "X/MIT", "(MIT OR X) AND Unicode-3.0", "MIT AND Apache-2.0"] {
        assert!(is_allowed(good, &allowed), "{good}");
    }
    for bad in ["", "X", "X OR Y", "MIT AND X", "(MIT OR X) AND Y"] {
        assert!(!is_allowed(bad, &allowed), "{bad}");
    }
}
