//! The pure parts of a request's way, run so often as is asked for: `scripts/instructions` counts the instructions of
//! each under valgrind and compares them with `benches/instructions.json`. It measures no time and opens no socket.
//!
//! `instructions PART COUNT` runs one part, `instructions` lists them. The parts are built from their sources, as
//! `shards/tests/loom.rs` does it, so that nothing becomes public for the sake of being measured.
#![allow(
    dead_code,
    unused_imports,
    unreachable_pub,
    missing_docs,
    reason = "parts of the libraries, built alone"
)]

#[path = "../../src/error.rs"]
mod error;
#[path = "../../src/exchange/mod.rs"]
mod exchange;
#[path = "../../src/http1/mod.rs"]
mod http1;
#[path = "../../shards/src/inbox.rs"]
mod inbox;
#[path = "../../src/limits.rs"]
mod limits;
#[path = "../../shards/src/sync.rs"]
mod sync;
#[path = "../../shards/src/table.rs"]
mod table;
#[path = "../../shards/src/timers/wheel.rs"]
mod wheel;

mod parts;

/// What an allocation costs is a part of the figures; this one is the same on every system.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let Some(name) = arguments.first() else {
        for (name, _) in parts::PARTS {
            println!("{name}");
        }
        return;
    };
    let Some((_, run)) = parts::PARTS.iter().find(|(part, _)| part == name) else {
        eprintln!("no part is named {name}; without an argument they are listed");
        std::process::exit(2);
    };
    let count = arguments.get(1).and_then(|text| text.parse().ok()).unwrap_or(1);
    run(count);
}
