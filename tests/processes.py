"""Exit code of a function in a process of its own, which shares no thread with the tests'."""

from multiprocessing import get_context


def exit_code_of(work, *args):
    """Exit code of a new interpreter that calls a module's function; −9 where it was killed."""
    process = get_context("spawn").Process(target=work, args=args)
    process.start()
    process.join()
    return process.exitcode
