//! Tests of `cycle.rs`: the table against its drawing, and the counters against the rules.

use super::*;

const PHASES: [(Phase, &str); 8] = [
    (Phase::Idle, "idle"),
    (Phase::Head, "head"),
    (Phase::Body, "body"),
    (Phase::LastBody, "last-body"),
    (Phase::Drain, "drain"),
    (Phase::Stopped, "stopped"),
    (Phase::Linger, "linger"),
    (Phase::Closed, "closed"),
];

const EVENTS: [(Event, &str); 18] = [
    (Event::HeadBegan, "head-began"),
    (Event::Taken, "taken"),
    (Event::TakenContent, "taken-content"),
    (Event::TakenLast, "taken-last"),
    (Event::TakenLastContent, "taken-last-content"),
    (Event::ContentEnded, "content-ended"),
    (Event::Answered, "answered"),
    (Event::AnsweredLast, "answered-last"),
    (Event::LastAnnounced, "last-announced"),
    (Event::IdleEnded, "idle-ended"),
    (Event::DrainExceeded, "drain-exceeded"),
    (Event::Refused, "refused"),
    (Event::AllSent, "all-sent"),
    (Event::AllSentFinished, "all-sent-finished"),
    (Event::LingerEnded, "linger-ended"),
    (Event::PeerFinished, "peer-finished"),
    (Event::Switched, "switched"),
    (Event::Broken, "broken"),
];

fn name(phase: Phase) -> &'static str {
    PHASES.iter().find(|(other, _)| *other == phase).unwrap().1
}

#[test]
fn the_table_is_the_one_drawn_in_the_module() {
    let mut printed = String::new();
    for (phase, phase_name) in PHASES {
        for (event, event_name) in EVENTS {
            let (next, actions) = step(phase, event);
            if next != phase || !actions.is_empty() {
                let row = format!("{phase_name:<10} {event_name:<19} {:<9} {actions}", name(next));
                printed.push_str(row.trim_end());
                printed.push('\n');
            }
        }
    }
    let drawn: String = include_str!("cycle.rs")
        .lines()
        .skip_while(|line| *line != "//! ```text")
        .skip(1)
        .take_while(|line| *line != "//! ```")
        .map(|line| format!("{}\n", &line[4..]))
        .collect();
    assert!(printed == drawn, "the table is now:\n{printed}");
}

fn plain() -> Framing {
    Framing { keep_alive: true, ..Framing::default() }
}

fn with_content(bytes: u64) -> Framing {
    Framing { body: BodyKind::Length(bytes), ..plain() }
}

fn cycle() -> Cycle {
    Cycle::new(&Limits::DEFAULT)
}

/// F6: at most 16 in flight; one answer makes room for one request.
#[test]
fn a_pipelining_flood_stops_at_the_bound() {
    let mut cycle = cycle();
    while cycle.may_take_request() {
        let _ = cycle.request_taken(plain());
    }
    assert_eq!(cycle.in_flight(), 16);
    assert!(cycle.may_persist(0, Some(0)) && cycle.may_persist(15, Some(0)));
    let _ = cycle.answer_ended(true);
    assert!(cycle.may_take_request());
}

/// RFC 9112 §9.6: after the request with close nothing is taken, and only its answer says close.
#[test]
fn the_last_request_is_the_one_that_asked_for_close() {
    let mut cycle = cycle();
    let _ = cycle.request_taken(plain());
    let _ = cycle.request_taken(Framing::default());
    assert!(!cycle.may_take_request());
    assert!(cycle.may_persist(0, Some(0)) && !cycle.may_persist(1, Some(0)));
    let _ = cycle.answer_ended(true);
    assert!(cycle.output_flushed().is_empty());
    let _ = cycle.answer_ended(false);
    assert_eq!(cycle.output_flushed(), Actions::SHUT_WRITE.and(Actions::START_LINGER_TIMER));
    assert_eq!(cycle.peer_finished(), Actions::CLOSE);
}

#[test]
fn requests_per_connection_are_bounded() {
    let limits = Limits { requests_per_connection_max: 2, ..Limits::DEFAULT };
    let mut cycle = Cycle::new(&limits);
    let _ = cycle.request_taken(plain());
    let _ = cycle.answer_ended(true);
    let _ = cycle.request_taken(plain());
    assert!(!cycle.may_persist(1, Some(0)) && !cycle.may_take_request());
}

/// F7: an unread content is thrown away up to its bound, and never read as a request.
#[test]
fn unread_content_is_drained_or_ends_the_connection() {
    let drain = Limits::DEFAULT.drain_bytes_max;
    let mut cycle = cycle();
    let _ = cycle.request_taken(with_content(drain));
    assert!(cycle.may_persist(0, Some(drain)) && !cycle.may_persist(0, Some(drain + 1)));
    assert_eq!(cycle.answer_ended(true), Actions::DISCARD_CONTENT);
    assert!(!cycle.may_take_request());
    assert!(cycle.discarded(drain).is_empty());
    assert_eq!(cycle.content_ended(), Actions::READ_NEXT);
    assert!(cycle.may_take_request());

    // Chunked: nobody knows the size before it has come.
    let _ = cycle.request_taken(Framing { body: BodyKind::Chunked, ..plain() });
    assert!(cycle.may_persist(1, None));
    let _ = cycle.answer_ended(true);
    let _ = cycle.discarded(drain + 1);
    assert_eq!(cycle.phase(), Phase::Stopped);
}

/// RFC 9110 §10.1.1, faults 64, 67, 68: at most one 100, none after the content began; a final answer without it ends
/// the connection, because the next byte may be content or not.
#[test]
fn a_100_is_queued_once_and_a_refusal_without_it_closes() {
    let expecting = Framing { expects_continue: true, ..with_content(5) };
    let mut cycle = cycle();
    let _ = cycle.request_taken(expecting);
    assert!(!cycle.may_persist(0, Some(5)));
    assert!(cycle.take_continue(0) && !cycle.take_continue(0));
    assert!(cycle.may_persist(0, Some(5)));
    let _ = cycle.content_ended();
    let _ = cycle.answer_ended(true);

    let _ = cycle.request_taken(expecting);
    assert!(!cycle.take_continue(0), "the request before is not the newest");
    cycle.content_received();
    assert!(!cycle.take_continue(1) && cycle.may_persist(1, Some(3)));
    let _ = cycle.content_ended();
    let _ = cycle.answer_ended(true);

    let _ = cycle.request_taken(expecting);
    let _ = cycle.answer_ended(cycle.may_persist(2, Some(5)));
    assert_eq!((cycle.phase(), cycle.may_take_request()), (Phase::Stopped, false));
}

/// RFC 9112 §2.2: a malformed head is answered behind the requests before it, and then the connection closes.
#[test]
fn a_refused_head_is_answered_in_its_turn() {
    let mut cycle = cycle();
    let _ = cycle.request_taken(plain());
    let _ = cycle.head_began();
    assert_eq!(cycle.refused(), Actions::ANSWER_REFUSAL);
    assert_eq!(cycle.in_flight(), 2);
    assert!(cycle.may_persist(0, Some(0)));
    let _ = cycle.answer_ended(true);
    assert!(cycle.output_flushed().is_empty());
    let _ = cycle.answer_ended(false);
    assert!(!cycle.output_flushed().is_empty());
}

#[test]
fn shutdown_answers_what_was_taken_and_closes_what_is_idle() {
    let mut idle = cycle();
    let _ = idle.request_taken(plain());
    let _ = idle.answer_ended(true);
    assert_eq!(idle.clone().begin_shutdown(true), Actions::NONE);
    assert_eq!(idle.begin_shutdown(false), Actions::CLOSE);

    let mut busy = cycle();
    let _ = busy.request_taken(plain());
    let _ = busy.head_began();
    let _ = busy.begin_shutdown(false);
    assert!(!busy.may_take_request() && !busy.may_persist(0, Some(0)));
    let _ = busy.answer_ended(false);
    assert!(busy.output_flushed().contains(Actions::SHUT_WRITE));

    let mut reading = cycle();
    let _ = reading.request_taken(with_content(5));
    let _ = reading.begin_shutdown(false);
    assert_eq!(reading.phase(), Phase::LastBody);
    assert!(reading.content_ended().is_empty());
}

/// A connection without a request so far, and one whose next head has begun to come, have one request yet.
#[test]
fn shutdown_takes_the_request_that_is_on_its_way() {
    let (fresh, mut began, mut again) = (cycle(), cycle(), cycle());
    let _ = began.head_began();
    let _ = again.request_taken(plain());
    let _ = again.answer_ended(true);
    let _ = again.head_began();
    for mut cycle in [fresh, began, again] {
        assert!(cycle.begin_shutdown(false).is_empty() && cycle.may_take_request());
        assert_eq!(cycle.request_taken(plain()), Actions::START_REQUEST, "and reads no next one");
        assert!(!cycle.may_take_request() && !cycle.may_persist(cycle.taken() - 1, Some(0)));
    }
}

/// RFC 9112 §9.6: a half-close does not end requests that are complete; one inside a content aborts it.
#[test]
fn a_half_close_is_answered_and_then_closed() {
    let mut cycle = cycle();
    let _ = cycle.request_taken(plain());
    let _ = cycle.peer_finished();
    let _ = cycle.answer_ended(false);
    assert_eq!(cycle.output_flushed(), Actions::CLOSE);

    let mut cut = Cycle::new(&Limits::DEFAULT);
    let _ = cut.request_taken(with_content(5));
    assert_eq!(cut.peer_finished(), Actions::ABORT_CONTENT);
}

/// A close announced by an earlier answer drops the later requests, also one whose content is still coming.
#[test]
fn an_answer_that_closes_drops_the_requests_behind_it() {
    let mut cycle = cycle();
    let _ = cycle.request_taken(plain());
    let _ = cycle.request_taken(with_content(5));
    assert_eq!(cycle.answer_ended(false), Actions::ABORT_CONTENT);
    assert_eq!((cycle.in_flight(), cycle.phase()), (0, Phase::Stopped));
}

#[test]
fn lingering_is_bounded_by_bytes_and_by_time() {
    for by_time in [true, false] {
        let mut cycle = cycle();
        let _ = cycle.request_taken(Framing::default());
        let _ = cycle.answer_ended(false);
        let _ = cycle.output_flushed();
        let actions = if by_time {
            cycle.linger_expired()
        } else {
            cycle.discarded(Limits::DEFAULT.linger_bytes_max + 1)
        };
        assert_eq!((actions, cycle.phase()), (Actions::CLOSE, Phase::Closed));
    }
}

/// H8: bytes behind an Upgrade are not parsed before the answer; a refused upgrade makes them requests again.
#[test]
fn bytes_behind_an_upgrade_are_held() {
    let mut cycle = cycle();
    let _ = cycle.request_taken(plain());
    assert!(cycle.hold_next(true).is_empty() && !cycle.may_take_request());
    let _ = cycle.answer_ended(true);
    assert!(!cycle.may_take_request());
    assert_eq!(cycle.hold_next(false), Actions::READ_NEXT);
    assert!(cycle.may_take_request());
}

/// A server that stops while a request with Upgrade is under way: its connection ends with the answer, be it that the
/// answer had promised more, or that the request has content.
#[test]
fn a_request_that_asks_for_an_upgrade_is_the_last_one_at_shutdown() {
    let mut promised = cycle();
    let _ = promised.request_taken(plain());
    let _ = promised.hold_next(true);
    let _ = promised.begin_shutdown(true);
    let _ = promised.answer_ended(true);
    assert!(promised.hold_next(false).is_empty() && !promised.may_take_request());
    assert_eq!(promised.phase(), Phase::Stopped);
    let mut receiving = cycle();
    let _ = receiving.request_taken(with_content(5));
    let _ = receiving.hold_next(true);
    let _ = receiving.begin_shutdown(true);
    assert!(!receiving.may_persist(0, Some(5)));
}
