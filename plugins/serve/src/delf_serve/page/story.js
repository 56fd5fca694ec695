// A task as its events tell it: the same fold for one that runs and for one that is replayed.

import { OVER, STATE } from "./states.js";

/** A script with what it did. */
class Chapter {
  constructor(attempt, code, because, at) {
    this.attempt = attempt;
    this.lines = code.replace(/\n$/, "").split("\n");
    this.code = code;
    this.because = because;
    this.at = at;
    this.calls = new Map(); // line → calls; 0 for those whose line is not known
    this.running = new Map(); // line → how many calls run
    this.prints = [];
    this.status = "running";
    this.error = null;
    this.errorLine = null;
    this.duration = null;
    this.ended = null;
  }

  put(call) {
    const line = call.line && call.line <= this.lines.length ? call.line : 0;
    call.line = line;
    if (!this.calls.has(line)) this.calls.set(line, []);
    this.calls.get(line).push(call);
    this.touched?.add(line);
  }

  run(line, by) {
    this.running.set(line, Math.max(0, (this.running.get(line) || 0) + by));
    this.touched?.add(line);
  }
}

export class Story {
  constructor() {
    this.seq = 0;
    this.task = "";
    this.state = STATE.QUEUED;
    this.startedAt = null;
    this.lastAt = null;
    this.idle = 0; // seconds in which no process worked on it
    this.finishedAt = null;
    this.chapters = [];
    this.calls = new Map();
    this.questions = new Map();
    this.prints = [];
    this.printed = 0;
    this.files = new Map();
    this.steps = [];
    this.models = [];
    this.warnings = [];
    this.facts = [];
    this.cost = 0;
    this.tokens = 0;
    this.changed = 0;
    this.answer = null;
    this.value = null; // the answer as data, where a task wants that
    this.error = null;
    this.conversation = null;
    this.parent = null;
    this.because = null;
    this.sandbox = null;
  }

  get over() { return OVER.includes(this.state); }

  get chapter() { return this.chapters.at(-1); }

  get waiting() { return [...this.questions.values()].filter((question) => !question.decided); }

  apply({ type, seq, at, data, headline, state, rewrite_reason: reason }) {
    if (seq <= this.seq) return;
    this.seq = seq;
    this.state = state;
    this.because = reason ?? this.because;
    if (type === "TaskResumed" && this.lastAt !== null) this.idle += at - this.lastAt;
    this.lastAt = at;
    this.startedAt ??= at;
    if (this[`on${type}`]) this[`on${type}`](data, at, headline);
    else if (headline && !reason) this.note(headline, at); // a reason stands at the next script
  }

  note(name, at) { this.steps.push({ name, at, duration: 0, kind: "note" }); }

  onTaskQueued(data, at) { this.begin(data, at); }

  onTaskStarted(data, at) {
    this.begin(data, at);
    this.parent = data.parent;
  }

  begin(data, at) {
    this.task = data.task;
    this.startedAt = at;
    this.conversation = data.conversation;
    this.askedBy = data.user?.replace(/(.):[^:]*$/, "$1") ?? null; // the name without the id; a name that a program gave has no id
    this.askedFrom = data.setup?.asked_from || null;
  }

  onTaskResumed(_data, at) {
    this.finishedAt = this.error = this.errorCode = this.errorHint = null; // it may have ended at its timeout or budget
    this.note("resumed", at);
  }

  onStepStarted(data, at) {
    this.steps.push({ name: data.step, attempt: data.attempt, at, duration: null, kind: "step" });
  }

  onStepFinished(data) {
    const step = this.steps.findLast((one) => one.name === data.step && one.duration === null);
    if (step) step.duration = data.duration_ms;
  }

  onModelReplied(data, at) {
    const usage = data.usage || {};
    this.tokens += (usage.input_tokens || 0) + (usage.output_tokens || 0);
    this.cost = this.cost === null || data.cost_usd === null ? null : this.cost + data.cost_usd;
    this.models.push({ ...data, at: at - data.duration_ms / 1000 });
    this.steps.push({ name: `${data.model.split("/").at(-1)} (${data.purpose})`,
      at: at - data.duration_ms / 1000, duration: data.duration_ms, kind: "model" });
  }

  onModelFailed(data) { this.warnings.push(`${data.model} failed: ${data.error}`); }

  onSandboxOpened(data) { this.sandbox = `${data.backend} (${data.isolation})`; }

  onScriptGenerated(data, at) {
    this.chapters.push(new Chapter(data.attempt, data.code, this.because, at));
    this.because = null;
  }

  onScriptFinished(data, at) {
    const chapter = this.chapter;
    if (!chapter) return;
    chapter.status = data.status;
    chapter.error = data.error;
    chapter.errorLine = data.line;
    chapter.duration = data.duration_ms;
    chapter.ended = at;
    chapter.running.clear();
  }

  call(id, action, line = null) {
    let call = this.calls.get(id);
    if (!call) {
      call = { id, action, line, status: "running", args: {}, effect: null, result: undefined,
        error: null, duration: null, at: null, description: null, question: null, children: [] };
      this.calls.set(id, call);
      this.chapter?.put(call);
      call.chapter = this.chapter;
    }
    return call;
  }

  onCallStarted(data, at) {
    const call = this.call(data.call_id, data.action, data.line);
    Object.assign(call, { args: data.arguments, effect: data.effect, at,
      description: data.description, status: "running" });
    call.chapter?.run(call.line, 1);
  }

  onCallFinished(data, at) {
    const call = this.call(data.call_id, data.action, data.line);
    // A call that was rejected before it started is not among those that run.
    if (call.at !== null && call.status === "running") call.chapter?.run(call.line, -1);
    Object.assign(call, { status: data.status, result: data.result, error: data.error,
      duration: data.duration_ms, ended: at });
    call.description ??= data.description;
    call.chapter?.touched?.add(call.line);
    if (call.effect && call.effect !== "read" && data.status === "ok") this.changed += 1;
  }

  onCallAbandoned(data) {
    const call = this.calls.get(data.call_id);
    if (call && call.status === "running") call.isAbandoned = true;
  }

  onChildStarted(data) { this.calls.get(data.call_id)?.children.push({ id: data.child_id, task: data.task }); }

  onApprovalRequested(data, at) {
    const question = { ...data, at, decided: null };
    const earlier = data.call_id ? [...this.questions.values()].findLast((one) => one.call_id === data.call_id && one.action === data.action) : null;
    if (earlier?.decided?.decision === "expired") question.again = earlier.decided.source;
    this.questions.set(data.request_id, question);
    question.chapter = this.chapter;
    if (data.call_id) {
      const call = this.call(data.call_id, data.action, data.line);
      if (call.at === null) Object.assign(call, { args: data.arguments, effect: data.effect, status: "waiting" });
      call.question = question;
      question.line = call.line;
      call.chapter?.touched?.add(call.line);
    }
  }

  onApprovalDecided(data, at) {
    const question = this.questions.get(data.request_id);
    if (!question) return;
    question.decided = { ...data, at };
    const call = this.calls.get(question.call_id);
    if (call?.status === "waiting") call.status = ["approved", "edited", "answered"].includes(data.decision) ? "running" : data.decision;
    call?.chapter?.touched?.add(call.line);
  }

  onApprovalVoted(data) { (this.questions.get(data.request_id).votes ??= []).push(data); }

  onApprovalCommented(data) { this.hear(data); }

  onApprovalAssigned(data) { this.hear(data); }

  /** Comments and the assignee of a request, in the server's words; of assignments only the last one counts. */
  hear(data) {
    const question = this.questions.get(data.request_id);
    if (!question) return;
    const before = (question.reactions || []).filter((fact) => "text" in data || fact.kind !== "assignee");
    question.reactions = data.fact ? [...before, data.fact] : before;
  }

  onApprovalRemembered(data, at, headline) {
    if (data.call_id) this.call(data.call_id, data.action).passed = data;
    else this.note(headline, at);
  }

  onPrinted(data) {
    this.prints.push(data.text);
    this.chapter?.prints.push(data.text);
    this.printed += data.text.length;
  }

  onFileWritten(data) { this.files.set(data.label, data.size); }

  onWarned(data) { this.warnings.push(data.message); }

  onFactsLearned(data) { this.facts.push(...data.facts); }

  onTaskFinished(data, at) {
    this.finishedAt = at;
    this.answer = data.status ? data.text : null;
    this.value = data.status ? data.value : null;
    this.isProse = !this.chapters.length && !this.calls.size;
    this.stoppedBy = data.by && data.via ? `${data.by} (${data.via})` : data.by;
    this.error = data.error;
    this.errorCode = data.code;
    this.errorHint = data.hint;
    this.cost = data.cost_usd;
    this.duration = data.duration_ms;
    this.chapter?.running.clear();
  }

  /** The end of what was printed, of so many characters at the most. */
  tail(most) {
    let text = "";
    for (let n = this.prints.length - 1; n >= 0 && text.length < most; n -= 1) text = this.prints[n] + text;
    return text.slice(-most);
  }
}
