//! Real descriptors, owned: shared by the uring and epoll drivers.
