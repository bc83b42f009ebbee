//! An exchange cannot be kept beyond its callback.
use shardlet::exchange::Exchange;

fn keep(x: &mut Exchange) -> Box<dyn FnOnce()> {
    Box::new(move || {
        let _ = x.complete();
    })
}

fn main() {
    let _ = keep;
}
