//! The demo page is one file that asks nobody else for anything, and it drives every route of the README.

const PAGE: &str = include_str!("../src/handlers/demo/page.html");

#[test]
fn asks_nobody_else() {
    // The name space of the icon's SVG is a name, not an address that is asked.
    let page = PAGE.replace("http://www.w3.org/2000/svg", "");
    for forbidden in ["http://", "https://", "src=", "@import", "url(", "//cdn", "integrity="] {
        assert!(!page.contains(forbidden), "the page holds {forbidden}: put it into the file");
    }
    let links = page.match_indices("<link").map(|(at, _)| &page[at..at + 40]);
    assert!(links.into_iter().all(|link| link.contains("href=\"data:")), "a link leads out of the page");
    assert!(page.len() < 64 * 1024, "{} bytes are too many for a page of this kind", page.len());
}

#[test]
fn both_themes_are_made_for() {
    assert!(PAGE.contains("prefers-color-scheme: dark") && PAGE.contains("content=\"light dark\""));
    let names = |block: &str| {
        let words =
            block.split([' ', '\n', ';', '{']).filter(|word| word.starts_with("--") && word.ends_with(':'));
        words.map(str::to_string).collect::<std::collections::BTreeSet<_>>()
    };
    let (light, dark) = PAGE.split_once("@media (prefers-color-scheme: dark)").expect("a dark theme");
    let dark = dark.split("* {").next().expect("the theme's block");
    assert_eq!(names(light), names(dark), "a colour is set in one theme alone");
}

#[test]
fn drives_every_route() {
    for route in [
        "/plaintext",
        "/echo",
        "/delay?ms=",
        "/race?work=",
        "/events?ms=",
        "/chat/poll?after=",
        "/chat/send",
        "/upload?accept=",
        "/throttled",
        "/stats",
        "/panic",
        "/block?ms=",
        "/files/",
    ] {
        let is_driven = PAGE.contains(&format!("(\"{route}")) || PAGE.contains(&format!("`{route}"));
        assert!(is_driven, "no card asks for {route}");
    }
}
