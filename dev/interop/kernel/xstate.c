/*
 * Lets an older User Mode Linux run on processors with a larger extended state.
 *
 * Debian 12's kernel (6.1) writes back the floating-point state of a guest's process
 * with as many bytes as it knows of. The host takes the whole state or nothing
 * (EFAULT), and on processors with AMX the whole is longer: the first process of the
 * guest dies. Preloaded into linux.uml, this adds the part that the guest does not
 * know, in its initial state. Reading needs nothing: the host cuts what it gives.
 */
#define _GNU_SOURCE
#include <elf.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { STATE_BYTES_MAX = 1 << 16 };

static unsigned char state[STATE_BYTES_MAX];
static size_t state_len; /* of this processor; 0: not known yet */

/* Not on the stack: a guest's kernel stack has 16 KiB. */
static long set_state(pid_t pid, const struct iovec *given)
{
    sigset_t all, before;
    struct iovec whole = { state, sizeof(state) };
    long result;

    sigfillset(&all);
    sigprocmask(SIG_BLOCK, &all, &before);
    if (state_len == 0 && syscall(SYS_ptrace, PTRACE_GETREGSET, pid, NT_X86_XSTATE, &whole) == 0)
        state_len = whole.iov_len;
    if (given->iov_len >= state_len) {
        result = syscall(SYS_ptrace, PTRACE_SETREGSET, pid, NT_X86_XSTATE, given);
    } else {
        memcpy(state, given->iov_base, given->iov_len);
        memset(state + given->iov_len, 0, state_len - given->iov_len);
        whole.iov_len = state_len;
        result = syscall(SYS_ptrace, PTRACE_SETREGSET, pid, NT_X86_XSTATE, &whole);
    }
    sigprocmask(SIG_SETMASK, &before, NULL);
    return result;
}

long ptrace(enum __ptrace_request request, ...)
{
    va_list arguments;
    pid_t pid;
    void *addr, *data;
    long word, result;

    va_start(arguments, request);
    pid = va_arg(arguments, pid_t);
    addr = va_arg(arguments, void *);
    data = va_arg(arguments, void *);
    va_end(arguments);
    if (request == PTRACE_SETREGSET && (long)addr == NT_X86_XSTATE)
        return set_state(pid, data);
    if (request != PTRACE_PEEKTEXT && request != PTRACE_PEEKDATA && request != PTRACE_PEEKUSER)
        return syscall(SYS_ptrace, request, pid, addr, data);
    /* The system call stores the word that the C function returns. */
    result = syscall(SYS_ptrace, request, pid, addr, &word);
    return result < 0 ? result : word;
}
