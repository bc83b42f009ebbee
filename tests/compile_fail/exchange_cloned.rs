//! There is one exchange, and it is lent.
use shardlet::exchange::Exchange;

fn copy(x: &mut Exchange) -> Exchange {
    Exchange::clone(x)
}

fn main() {
    let _ = copy;
}
