"""The functions by which threads share out a pass over columns, as LLVM assembly.

A thread claims one span after the other by an atomic counter (`share`). Threads
that help are asked through a cell each. A cell's state says who is next to act:

    ASLEEP   nobody waits at the cell: whoever wants help has to wake somebody
    IDLE     a helper waits for work, or is about to
    OFFERED  there is work; the caller may take the offer back
    TAKEN    the helper works; the caller has to wait for it

So a helper that gets no core in time holds nobody up. While it waits it lets
others have its core. `sharing` calls these.
"""

ASLEEP, IDLE, OFFERED, TAKEN = range(4)

CELL_WORDS = 8
"""64-bit words of a cell: its state, the work, the state before the offer; a cache line."""

WORK_FIELDS = {
    "kernel": "ptr",
    "rows": "ptr",
    "out": "ptr",
    "scratch": "ptr",
    "sums": "ptr",
    "given": "ptr",
    "start": "i64",
    "stop": "i64",
    "step": "i64",
    "scratch_bytes": "i64",
    "sums_bytes": "i64",
}
"""What threads share, 64 bits each; after it there are the numbers of claimed spans and threads."""


def sharing_assembly() -> str:
    """Return the module of all four functions."""
    loads = "\n".join(
        f"  %{name}.at = getelementptr i64, ptr %work, i64 {place}\n"
        f"  %{name} = load {kind}, ptr %{name}.at"
        for place, (name, kind) in enumerate(WORK_FIELDS.items())
    )
    counters = len(WORK_FIELDS)
    given = "ptr %rows, i64 %first, i64 %end, ptr %out, ptr %own.scratch, ptr %own.sums, ptr %given"
    return f"""declare i64 @llvm.smin.i64(i64, i64)
declare i32 @sched_yield()

define void @share(ptr %work) nounwind {{
entry:
{loads}
  %spans = getelementptr i64, ptr %work, i64 {counters}
  %threads = getelementptr i64, ptr %work, i64 {counters + 1}
  %thread = atomicrmw add ptr %threads, i64 1 monotonic
  %scratch.offset = mul i64 %thread, %scratch_bytes
  %own.scratch = getelementptr i8, ptr %scratch, i64 %scratch.offset
  br label %claim
claim:
  %span = atomicrmw add ptr %spans, i64 1 monotonic
  %offset = mul i64 %span, %step
  %first = add i64 %start, %offset
  %is.left = icmp slt i64 %first, %stop
  br i1 %is.left, label %run, label %done
run:
  %beyond = add i64 %first, %step
  %end = call i64 @llvm.smin.i64(i64 %beyond, i64 %stop)
  %sums.offset = mul i64 %span, %sums_bytes
  %own.sums = getelementptr i8, ptr %sums, i64 %sums.offset
  call void %kernel({given})
  br label %claim
done:
  ret void
}}

define void @offer(ptr %cells, i64 %count, ptr %work) nounwind {{
entry:
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %following, %next ]
  %place = mul i64 %i, {CELL_WORDS}
  %state = getelementptr i64, ptr %cells, i64 %place
  %work.at = getelementptr i64, ptr %state, i64 1
  %before.at = getelementptr i64, ptr %state, i64 2
  store ptr %work, ptr %work.at
  %before = atomicrmw xchg ptr %state, i64 {OFFERED} acq_rel
  store i64 %before, ptr %before.at
  %following = add i64 %i, 1
  %is.more = icmp slt i64 %following, %count
  br i1 %is.more, label %next, label %done
done:
  ret void
}}

define void @lead(ptr %cells, i64 %count, ptr %work) nounwind {{
entry:
  call void @share(ptr %work)
  br label %next
next:
  %i = phi i64 [ 0, %entry ], [ %following, %gone ]
  %place = mul i64 %i, {CELL_WORDS}
  %state = getelementptr i64, ptr %cells, i64 %place
  %back = cmpxchg ptr %state, i64 {OFFERED}, i64 {IDLE} acq_rel acquire
  %was.open = extractvalue {{ i64, i1 }} %back, 1
  br i1 %was.open, label %gone, label %look
look:
  %now = load atomic i64, ptr %state acquire, align 8
  %is.taken = icmp eq i64 %now, {TAKEN}
  br i1 %is.taken, label %wait, label %gone
wait:
  call i32 @sched_yield()
  br label %look
gone:
  %following = add i64 %i, 1
  %is.more = icmp slt i64 %following, %count
  br i1 %is.more, label %next, label %done
done:
  ret void
}}

define void @serve(ptr %state, i64 %looks) nounwind {{
entry:
  %work.at = getelementptr i64, ptr %state, i64 1
  br label %look
look:
  %left = phi i64 [ %looks, %entry ], [ %looks, %run ], [ %fewer, %wait ]
  %take = cmpxchg ptr %state, i64 {OFFERED}, i64 {TAKEN} acq_rel acquire
  %is.offered = extractvalue {{ i64, i1 }} %take, 1
  br i1 %is.offered, label %run, label %nothing
run:
  %work = load ptr, ptr %work.at
  call void @share(ptr %work)
  store atomic i64 {IDLE}, ptr %state release, align 8
  br label %look
nothing:
  %fewer = sub i64 %left, 1
  %is.over = icmp sle i64 %fewer, 0
  br i1 %is.over, label %leave, label %wait
leave:
  %asleep = cmpxchg ptr %state, i64 {IDLE}, i64 {ASLEEP} acq_rel acquire
  %may.leave = extractvalue {{ i64, i1 }} %asleep, 1
  br i1 %may.leave, label %done, label %wait
wait:
  call i32 @sched_yield()
  br label %look
done:
  ret void
}}
"""
