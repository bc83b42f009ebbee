//! Handles that are kept beyond the end of their exchange, and written through when others have its slot.

use crate::{
    common::{
        DEADLINE,
        library::{Local, each_driver},
    },
    request,
};
use shardlet::{AsyncContext, Error, Exchange, ForeignCalls, Result, Router, StatusCode};
use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering::SeqCst},
        mpsc,
    },
    time::{Duration, Instant},
};

/// What holds the shard in a callback: says that it does, and waits until the other side drops its end.
struct Hold {
    entered: mpsc::Sender<()>,
    release: mpsc::Receiver<()>,
}

impl Hold {
    fn new() -> (Hold, mpsc::Receiver<()>, mpsc::Sender<()>) {
        let ((entered, entry), (hold, release)) = (mpsc::channel(), mpsc::channel());
        (Hold { entered, release }, entry, hold)
    }

    fn hold(self) {
        self.entered.send(()).expect("the test listens");
        // Disconnected is what is waited for.
        let _ = self.release.recv_timeout(DEADLINE);
    }
}

/// The next thing that holds the shard.
type Gate = Arc<Mutex<Option<Hold>>>;

/// `/keep` gives its context away and is answered; `/probe` waits until it is told to answer; `/hold` holds the shard in
/// its handler, `/late` in its timeout.
fn keeping(driver: shards::DriverChoice) -> (Local, mpsc::Receiver<AsyncContext>, Gate) {
    let (tell, contexts) = mpsc::channel();
    let gate = Gate::default();
    let shared = gate.clone();
    let server = Local::start(driver, move |_| {
        let (in_handler, in_timeout) = (shared.clone(), shared.clone());
        let (keep, probe) = (tell.clone(), tell.clone());
        Router::new()
            .route("/keep", move |x: &mut Exchange| {
                keep.send(x.context()).expect("the test listens");
                write!(x, "kept")
            })
            .route("/probe", move |x: &mut Exchange| {
                probe.send(x.start_async()).expect("the test listens");
            })
            .route("/hold", move |x: &mut Exchange| {
                pass(&in_handler);
                write!(x, "held")
            })
            .route("/late", move |x: &mut Exchange| {
                let gate = in_timeout.clone();
                x.start_async();
                x.set_timeout(Duration::from_millis(1));
                x.on_timeout(move |x: &mut Exchange| -> Result<()> {
                    pass(&gate);
                    write!(x, "held")?;
                    x.complete()
                });
            })
    });
    (server, contexts, gate)
}

fn pass(gate: &Gate) {
    let hold = gate.lock().unwrap().take();
    hold.expect("the test has closed the gate").hold();
}

fn answer(x: &mut Exchange) -> Result<()> {
    x.response().set_header("X-Probe", "mine")?;
    write!(x, "identical")?;
    x.complete()
}

/// Whatever may change a response, through a handle whose exchange is over: each says so, none has an effect.
fn write_late(stale: &AsyncContext, ran: &Arc<AtomicUsize>) {
    let poison = || {
        let ran = ran.clone();
        move |x: &mut Exchange| -> Result<()> {
            ran.fetch_add(1, SeqCst);
            x.response().set_status(StatusCode::IM_A_TEAPOT);
            x.response().set_header("X-Poison", "1")?;
            write!(x, "poison")?;
            x.complete()
        }
    };
    assert!(stale.executor().execute(poison()).is_err() && stale.dispatch(poison()).is_err());
    assert!(stale.whole_exchange().dispatch(poison()).is_err());
    let with = poison();
    assert!(stale.with(move |x| with(x).is_ok()).is_err());
    assert!(matches!(stale.start(|_| ()), Err(Error::Ended(_))));
    let foreign = stale.foreign_response(ForeignCalls::Warn);
    assert!(
        foreign.set_status(StatusCode::IM_A_TEAPOT).is_err() && foreign.set_header("X-Poison", "1").is_err()
    );
    assert!(foreign.write("poison").is_err() && foreign.complete().is_err());
}

/// A thousand times on each driver, from a foreign thread and from the shard itself, while another client's request
/// waits in the slot: its answer is the same to the octet.
#[test]
fn fault_16_a_thousand_late_writes_change_no_octet_of_the_next_in_the_slot() {
    each_driver(|driver| {
        let (server, contexts, _) = keeping(driver);
        let next = || contexts.recv_timeout(DEADLINE).expect("a context");
        let ran = Arc::new(AtomicUsize::new(0));
        let (mut writer, mut prober) = (server.connect(), server.connect());
        let mut first: Option<AsyncContext> = None;
        let mut expected = None;
        for round in 0..1000 {
            assert_eq!(writer.get("/keep").text(), "kept");
            let stale = next();
            // Its end is told by the kernel's word that the answer has left, nearly at once.
            let began = Instant::now();
            while server.counters().live > 0 {
                assert!(began.elapsed() < DEADLINE, "round {round}: it has not ended");
            }
            prober.send(request("/probe"));
            let probe = next();
            let (before, now) = (stale.id(), probe.id());
            assert_eq!(before.key.slot, now.key.slot, "round {round}: the slot is used again");
            assert_ne!(before, now);
            for late in [Some(&stale), first.as_ref()].into_iter().flatten() {
                write_late(late, &ran);
                let (late, ran) = (late.clone(), ran.clone());
                server.shard().submit_to(move |_| write_late(&late, &ran)).wait().expect("on the shard");
            }
            probe.executor().execute(answer).expect("taken");
            let mut got = prober.read_response();
            got.fields.retain(|(name, _)| name != "date");
            let expected = expected.get_or_insert_with(|| got.clone());
            assert_eq!(*expected, got, "round {round}");
            first.get_or_insert(stale);
        }
        assert_eq!(expected.map(|got| (got.status, got.text().to_owned())), Some((200, "identical".into())));
        drop((writer, prober));
        server.expect_rest();
        let counters = server.counters();
        assert_eq!((ran.load(SeqCst), counters.started), (0, 2000));
    });
}

/// The write is taken while its exchange waits, and is under way when that ends and the slot is used again: what may run
/// is decided when it would run (L-5). The shard is held twice: in the last stage of a turn, so that the next turn finds
/// all of what follows at once, and there in the first of three requests, behind its inbox, when the write is sent.
#[test]
fn fault_16_a_write_that_is_under_way_meets_the_next_in_its_slot() {
    each_driver(|driver| {
        let (server, contexts, gate) = keeping(driver);
        let next = || contexts.recv_timeout(DEADLINE).expect("a context");
        let ran = Arc::new(AtomicUsize::new(0));
        let [mut late, mut holder, mut prober] = [(); 3].map(|()| server.connect());
        let (mut taken, mut reused) = (0, 0);
        for round in 0..100 {
            let mut leaver = server.connect();
            leaver.send(request("/probe"));
            let stale = next();
            let first = close(&gate);
            late.send(request("/late"));
            first.0.recv_timeout(DEADLINE).expect("held in the timeout");
            let second = close(&gate);
            holder.send(request("/hold"));
            leaver.reset();
            prober.send(request("/probe"));
            drop(first);
            second.0.recv_timeout(DEADLINE).expect("held in the handler");
            let (counted, own) = (ran.clone(), stale.id());
            let poison = move |x: &mut Exchange| {
                counted.fetch_add(usize::from(x.id() != own), SeqCst);
                write!(x, "poison")
            };
            // Refused if the kernel told of the reset first, run if it tells of it later than of the request behind it.
            taken += u64::from(stale.executor().execute(poison).is_ok());
            drop(second);
            let probe = next();
            reused += usize::from(stale.id().key.slot == probe.id().key.slot && stale.id() != probe.id());
            probe.executor().execute(answer).expect("taken");
            let got = prober.read_response();
            assert_eq!((got.status, got.text()), (200, "identical"), "round {round}");
            assert_eq!((late.read_response().text(), holder.read_response().text()), ("held", "held"));
        }
        println!("{taken} writes were under way, {reused} of 100 slots were used again meanwhile");
        let dropped = server.counters().stale_tasks_dropped;
        assert_eq!(ran.load(SeqCst), 0, "it ran in an exchange that is not its own");
        // Whether the slot is free before the next one begins is the kernel's order of events, and only printed.
        assert!(dropped > 0 && dropped <= taken, "{dropped} of {taken} dropped");
        drop((late, holder, prober));
        server.expect_rest();
    });
}

/// The next one to pass is held: tells when it is, until the sender is dropped.
fn close(gate: &Gate) -> (mpsc::Receiver<()>, mpsc::Sender<()>) {
    let (hold, entered, release) = Hold::new();
    assert!(gate.lock().unwrap().replace(hold).is_none());
    (entered, release)
}
