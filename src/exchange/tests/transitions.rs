//! Every state that can be reached, by search: the edges between phases are the drawing in `mod.rs`, and what must
//! hold after each step holds after each of them.

use crate::{
    error::EndReason,
    exchange::{
        life::{Action, Callback, Event, Intents, Outcome, Phase, Side, State, Wait},
        state::step,
    },
};
use std::collections::{BTreeSet, HashSet, VecDeque};

/// The events with a name for the drawing: reasons by one of each kind, and `data` for all waiting callbacks that
/// are told of a readiness (they are treated alike).
fn events(state: State) -> Vec<(&'static str, Event)> {
    let mut events = vec![
        ("task", Event::TaskArrived),
        ("wake", Event::FutureWoken),
        ("timer", Event::TimerFired),
        ("data", Event::InputArrived),
        ("data ended", Event::InputEnded),
        ("failure", Event::InputFailed(EndReason::ProtocolError)),
        ("committed", Event::HeadCommitted),
        ("output finished", Event::OutputFinished),
        ("client gone", Event::OutputFailed(EndReason::WriteTimeout)),
        ("failure", Event::ShutdownForced(EndReason::Shutdown)),
    ];
    if state.phase == Phase::Vacant {
        for (coordinated, has_body) in [(false, false), (false, true), (true, false), (true, true)] {
            let wait = if has_body { Wait::WholeBody } else { Wait::Nothing };
            events.push(("started", Event::Started { coordinated, has_body, wait }));
        }
    }
    if state.running.is_some() {
        events.extend(returns());
    }
    events
}

fn returns() -> Vec<(&'static str, Event)> {
    let none = Intents::default();
    let answers = [
        ("returned", none),
        ("start_async", Intents { start_async: true, ..none }),
        ("service", Intents { service: true, ..none }),
        ("complete", Intents { complete: true, ..none }),
        ("complete", Intents { complete: true, start_async: true, flush: true, send_continue: true, ..none }),
        ("redispatch", Intents { redispatch: true, ..none }),
        ("extend", Intents { timeout_set: true, start_async: true, ..none }),
        ("abort", Intents { abort: true, ..none }),
    ];
    let mut all: Vec<_> = answers
        .into_iter()
        .map(|(name, intents)| (name, Event::CallbackReturned { outcome: Outcome::Returned, intents }))
        .collect();
    let outcome = Outcome::Failed(EndReason::HandlerFailed);
    all.push(("failed", Event::CallbackReturned { outcome, intents: none }));
    all
}

/// What holds after each step.
fn check(before: State, event: Event, after: State, actions: &[Action]) {
    let what = || format!("{before:?} + {event:?} -> {after:?} {actions:?}");
    let runs = actions.iter().filter(|a| matches!(a, Action::Run(_) | Action::ErrorDispatch(_))).count();
    let started = after.running.is_some() && (before.running.is_none() || before.running != after.running);
    assert!(runs <= 1, "L-1, one at a time: {}", what());
    assert!(
        runs == 0 || before.running.is_none() || matches!(event, Event::CallbackReturned { .. }),
        "{}",
        what()
    );
    assert!(!started || runs == 1, "{}", what());
    let ends = actions.iter().filter(|a| matches!(a, Action::CountEnd(_))).count();
    assert_eq!(ends == 1, before.phase != Phase::Ended && after.phase == Phase::Ended, "L-9: {}", what());
    if after.phase == Phase::Ended {
        assert_eq!(
            (after.input, after.output),
            (Side::Over, Side::Over),
            "all three parts are over: {}",
            what()
        );
        assert_eq!(after.running, Some(Callback::Complete), "L-10: {}", what());
    }
    assert!(!(after.timer_armed && matches!(after.phase, Phase::Finishing | Phase::Ended)), "{}", what());
    if matches!(before.phase, Phase::Finishing | Phase::Ended) {
        assert!(
            matches!(after.phase, Phase::Finishing | Phase::Ended | Phase::Vacant),
            "no way back: {}",
            what()
        );
    }
    if before.committed {
        let replaced =
            actions.iter().any(|a| matches!(a, Action::ErrorDispatch(_) | Action::BuiltInAnswer(_)));
        assert!(!replaced, "L-13, nothing is replaced after commit: {}", what());
    }
}

/// All edges between two phases, found from an empty slot.
fn explore() -> BTreeSet<String> {
    let mut edges = BTreeSet::new();
    let mut seen = HashSet::from([State::VACANT]);
    let mut queue = VecDeque::from([State::VACANT]);
    while let Some(state) = queue.pop_front() {
        for (name, event) in events(state) {
            let (after, actions) = step(state, event);
            check(state, event, after, actions.as_slice());
            if after.phase != state.phase && !is_silence(state, name, after) {
                edges.insert(format!("{:?} --{name}--> {:?}", state.phase, after.phase));
            }
            // A slot that was given back begins anew.
            let next = if after.phase == Phase::Vacant { State::VACANT } else { after };
            if seen.insert(next) {
                queue.push_back(next);
            }
        }
    }
    assert!(seen.len() > 1000, "only {} states were found", seen.len());
    edges
}

/// Whether a return that asked for something did no more than a silent one does.
fn is_silence(state: State, name: &str, after: State) -> bool {
    let asked = returns().iter().any(|(other, _)| *other == name) && name != "returned";
    let silent = Event::CallbackReturned { outcome: Outcome::Returned, intents: Intents::default() };
    asked && step(state, silent).0.phase == after.phase
}

/// One line for each pair of phases.
fn drawing(edges: &BTreeSet<String>) -> String {
    let mut lines: std::collections::BTreeMap<(String, String), Vec<String>> = Default::default();
    for edge in edges {
        let (from, rest) = edge.split_once(" --").expect("an edge");
        let (name, to) = rest.split_once("--> ").expect("an edge");
        lines.entry((from.to_owned(), to.to_owned())).or_default().push(name.to_owned());
    }
    let order = ["Vacant", "Deciding", "Handling", "Parked", "Failing", "Responding", "Finishing", "Ended"];
    let mut drawn = String::new();
    for from in order {
        for to in order {
            if let Some(names) = lines.get(&(from.to_owned(), to.to_owned())) {
                drawn.push_str(&format!("{from:<10} → {to:<10} {}\n", names.join(", ")));
            }
        }
    }
    drawn
}

#[test]
fn the_drawing_in_the_module_is_the_machine() {
    let drawn = drawing(&explore());
    let module = include_str!("../mod.rs");
    let block =
        module.split("//! ```text\n").nth(1).and_then(|rest| rest.split("//! ```").next()).unwrap_or("");
    let written: String =
        block.lines().map(|line| format!("{}\n", line.trim_start_matches("//! "))).collect();
    assert_eq!(written, drawn, "\nthe machine is:\n{drawn}");
}
