//! Samples of every kind of attack on a path, and a grammar of them against a model.

use super::*;
use std::path::{Component, Path};

fn relative(raw: &str) -> Result<String, Refusal> {
    safe_path(raw, false).map(|path| path.relative)
}

#[test]
fn plain_paths_are_decoded_once() {
    let table = [
        ("/", ""),
        ("/file.txt", "file.txt"),
        ("/a%20b.txt", "a b.txt"),
        ("/sub/%69nner.txt", "sub/inner.txt"),
        ("/sub/", "sub"),
        ("/caf%C3%A9", "café"),
        ("/100%25", "100%"),
        ("/%252e%252e/x", "%2e%2e/x"),
        ("/a;b=c/d:e@f", "a;b=c/d:e@f"),
        ("/.well-known/acme-challenge/x", ".well-known/acme-challenge/x"),
    ];
    for (raw, wanted) in table {
        assert_eq!(relative(raw).as_deref(), Ok(wanted), "{raw}");
    }
    assert!(safe_path("/sub/", false).unwrap().ends_with_slash());
    assert!(safe_path("/", false).unwrap().ends_with_slash());
    assert!(!safe_path("/sub", false).unwrap().ends_with_slash());
}

/// P1 and P4 of the attack table.
#[test]
fn every_kind_of_attack_is_refused_with_its_reason() {
    use Refusal::{EncodedSeparator, Hidden, Malformed, NotNormal, TooLong, Undecodable};
    let deep = "/a".repeat(4000);
    let long = format!("/{}", "n".repeat(256));
    let table = [
        ("", Malformed),
        ("foo", Malformed),
        ("*", Malformed),
        ("/%", Malformed),
        ("/%zz", Malformed),
        ("/a%2", Malformed),
        ("/%%41", Malformed),
        ("/{a}", Malformed),
        ("/^", Malformed),
        ("/<a>", Malformed),
        ("/a\\b", Malformed),
        ("/a b", Malformed),
        ("/a#b", Malformed),
        ("/a?b", Malformed),
        ("/caf\u{e9}", Malformed),
        ("/..\\secret.txt", Malformed),
        ("//", NotNormal),
        ("//evil.test/", NotNormal),
        ("/a//b", NotNormal),
        ("/a//", NotNormal),
        ("/../secret.txt", NotNormal),
        ("/./file.txt", NotNormal),
        ("/sub/%2e%2e/%2e%2e/secret.txt", NotNormal),
        ("/.%2e/secret.txt", NotNormal),
        ("/%2E", NotNormal),
        ("/sub/..;/../secret.txt", NotNormal),
        ("/..;x=y", NotNormal),
        ("/a/..", NotNormal),
        ("/..%2fsecret.txt", EncodedSeparator),
        ("/..%2Fsecret.txt", EncodedSeparator),
        ("/..%5csecret.txt", EncodedSeparator),
        ("/%00", Undecodable),
        ("/file.txt%00.html", Undecodable),
        ("/sub%0d%0aX-Injected:y", Undecodable),
        ("/%7f", Undecodable),
        ("/%c2%85", Undecodable),
        ("/%c0%ae%c0%ae/secret.txt", Undecodable),
        ("/%ff", Undecodable),
        ("/.git/config", Hidden),
        ("/sub/.htaccess", Hidden),
        ("/%2ehidden", Hidden),
        ("/sub/.well-known/x", Hidden),
        ("/..../secret.txt", Hidden),
        ("/file.txt.", Hidden),
        ("/file.txt%20", Hidden),
        ("/file.txt~", Hidden),
        ("/%23file.txt%23", Hidden),
        ("/config.php.BAK", Hidden),
        ("/.file.swp", Hidden),
        (&deep, TooLong),
        (&long, TooLong),
    ];
    for (raw, wanted) in table {
        assert_eq!(relative(raw), Err(wanted), "{raw}");
    }
}

#[test]
fn hidden_names_are_shown_when_asked_for() {
    assert!(safe_path("/.git/config", true).is_ok());
    assert!(safe_path("/a.bak", true).is_ok());
    assert!(safe_path("/../a", true).is_err());
    assert!(!is_servable(".env", false) && is_servable(".env", true));
    for never in ["", ".", "..", "a/b", "a\\b", "a\nb", "a."] {
        assert!(!is_servable(never, true), "{never:?}");
    }
}

/// Whatever is accepted is plain, and is what one independent decoding of the request gives.
#[test]
fn a_grammar_of_attacks_never_leaves_the_root() {
    const TOKENS: [&str; 32] = [
        "/", "/", "/", "//", ".", "..", "%2e", "%2E%2e", "...", "%2f", "%5c", "\\", ";", "..;", "%00",
        "%0d%0a", "%c0%ae", "%25", "%252e", "%", "%zz", "a", "b.txt", "sub", "%61", "%20", " ", "~", ".git",
        "%c3%a9", "*", ":",
    ];
    let seed = std::env::var("SHARDLET_SEED")
        .ok()
        .and_then(|seed| seed.parse().ok())
        .unwrap_or(0x9e37_79b9_7f4a_7c15_u64);
    println!("replay with SHARDLET_SEED={seed}");
    let mut state = seed | 1;
    let mut next = move |bound: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        usize::try_from(state >> 33).unwrap() % bound
    };
    let mut accepted = 0;
    for round in 0..100_000 {
        let mut raw = String::from("/");
        for _ in 0..=next(8) {
            raw.push_str(TOKENS[next(TOKENS.len())]);
        }
        let show_hidden = round % 2 == 0;
        let Ok(path) = safe_path(&raw, show_hidden) else { continue };
        accepted += 1;
        let decoded = percent_encoding::percent_decode_str(&raw).decode_utf8().unwrap();
        assert_eq!(decoded.trim_matches('/'), path.relative(), "{raw}");
        for part in Path::new(path.relative()).components() {
            assert!(matches!(part, Component::Normal(_)), "{raw}");
        }
        let relative = path.relative();
        assert!(!relative.starts_with('/') && !relative.contains("//"), "{raw}");
        assert!(!relative.contains(['\\', '\0', '\r', '\n']), "{raw}");
        if !show_hidden {
            assert!(!relative.split('/').any(|name| name.starts_with('.') && name != ".well-known"), "{raw}");
        }
    }
    assert!(accepted > 1000, "the grammar makes too few good paths: {accepted}");
}
