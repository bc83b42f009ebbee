//! may_minihttp with one worker.
use may_minihttp::{HttpServer, HttpService, Request, Response};

#[derive(Clone)]
struct Hello;

impl HttpService for Hello {
    fn call(&mut self, req: Request, res: &mut Response) -> std::io::Result<()> {
        if req.path() == "/plaintext" {
            res.header("Content-Type: text/plain").body("Hello, World!");
        } else {
            res.status_code(404, "Not Found");
        }
        Ok(())
    }
}

fn main() {
    may::config().set_workers(1);
    HttpServer(Hello).start(("127.0.0.1", common::port())).unwrap().join().unwrap();
}
