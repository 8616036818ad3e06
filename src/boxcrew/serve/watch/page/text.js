// The words of the page, in English and Chinese.

const WORDS = {
  en: {
    skip: "Skip to the run", runs: "Runs", filter: "Find a run", curves: "Curves", over: "over", step: "steps",
    epoch: "epochs", time: "training time", smoothing: "smoothing", log_scale: "log scale",
    choose_charts: "Charts", no_runs: "No runs yet. They appear here as soon as boxcrew train has begun one.",
    no_curves: "No numbers yet. Tick a run, or wait for its first steps.", close: "Close",
    live: "live", offline: "no connection, trying again", light: "Light", dark: "Dark", auto: "Auto",
    theme: "Colors", language: "中文", token_title: "A token is needed",
    token_text: "This page needs the token that boxcrew watch was started with.", token_wrong: "That token was not accepted.",
    token_send: "Continue",
    waiting: "waiting", preparing: "preparing", running: "running", interrupted: "interrupted", killed: "killed",
    failed: "failed", finished: "finished", gone: "deleted",
    why_killed: "Its process ended without notice: it was killed, or the machine stopped.",
    why_gone: "Its directory is no longer there. This is what was read before.",
    why_preparing: "Data, network and plan are made; the first step follows.",
    resume: "to continue: boxcrew resume run={0}",
    remaining: "{0} left", ends_at: "done at about {0}", trained: "{0} trained", best: "best {0}", at_step: "at step {0}",
    silent: "nothing written for {0}", overlay: "Show the curves of {0}", part_of: "{0} of {1} finished",
    now_at: "now at {0}", parts: "Parts", stages: "Stages", name: "name", state: "state", score: "score",
    plan: "Plan", predicted: "predicted", range: "range", measured: "measured", difference: "difference",
    step_seconds: "seconds of a step", images_per_second: "samples per second", epoch_seconds: "time of an epoch",
    run_seconds: "time of the training", peak_bytes: "peak memory", data_wait: "waiting for data",
    projected: "projected", at_most: "at most {0}", within: "as predicted", outside: "outside",
    first_steps: "First steps", reasons: "Why", rejected: "Not chosen", advice: "Advice", no_advice: "No advice so far.",
    pictures: "Pictures", classes: "Classes", log: "Log", settings: "Settings", data: "Data",
    machine: "Machine", task: "Task", num_classes: "{0} classes", speed: "Speed of a sample",
    milliseconds: "{0} ms", damaged: "Damaged files, of which nothing is shown: {0}",
    loss: "loss", gradient_norm: "gradient norm", rate: "learning rate", frechet: "Fréchet distance",
    val_loss: "validation loss", accuracy: "accuracy", perplexity: "perplexity", behind: "reading…",
    class_metric: "{0} of each class, last evaluation", select_parts: "Show the curves of all parts",
    many: "At most {0} runs can be drawn at once.", chart_keys: "Arrow keys move along the curve.",
    host: "on {0}", updated: "last written {0}",
    "val_batch0_pred.jpg": "predictions on validation images", "val_batch0_labels.jpg": "their labels",
    "train_batch0.jpg": "the first training batch", "made.jpg": "generated", "photos.jpg": "the same images by every detector",
    "train_batch_proposals.jpg": "proposals", "scatter.png": "accuracy and time",
  },
  zh: {
    skip: "跳到训练详情", runs: "训练", filter: "查找训练", curves: "曲线", over: "横轴", step: "步数",
    epoch: "轮数", time: "训练时间", smoothing: "平滑", log_scale: "对数坐标",
    choose_charts: "图表", no_runs: "还没有训练。boxcrew train 一开始，就会显示在这里。",
    no_curves: "还没有数据。请勾选一个训练，或等待最初几步。", close: "关闭",
    live: "实时", offline: "连接中断，正在重试", light: "浅色", dark: "深色", auto: "自动",
    theme: "配色", language: "English", token_title: "需要令牌",
    token_text: "此页面以 token= 启动，查看者需要知道它。", token_wrong: "令牌不正确。", token_send: "继续",
    waiting: "等待中", preparing: "准备中", running: "训练中", interrupted: "已停止", killed: "意外中断",
    failed: "失败", finished: "已完成", gone: "已删除",
    why_killed: "进程没有任何通知就结束了：被杀死，或机器停机。",
    why_gone: "目录已不存在。显示的是之前读到的内容。",
    why_preparing: "正在准备数据、网络和计划，随后开始第一步。",
    resume: "继续训练：boxcrew resume run={0}",
    remaining: "剩余 {0}", ends_at: "约 {0} 结束", trained: "已训练 {0}", best: "最佳 {0}", at_step: "第 {0} 步",
    silent: "已有 {0} 没有写入", overlay: "显示 {0} 的曲线", part_of: "已完成 {0} / {1}",
    now_at: "当前：{0}", parts: "组成部分", stages: "阶段", name: "名称", state: "状态", score: "成绩",
    plan: "计划", predicted: "预测", range: "范围", measured: "实测", difference: "差异",
    step_seconds: "每步秒数", images_per_second: "每秒样本数", epoch_seconds: "每轮时间",
    run_seconds: "训练总时间", peak_bytes: "内存峰值", data_wait: "等待数据",
    projected: "推算", at_most: "最多 {0}", within: "符合预测", outside: "超出范围",
    first_steps: "最初几步", reasons: "原因", rejected: "未采用", advice: "建议", no_advice: "暂无建议。",
    pictures: "图片", classes: "类别", log: "日志", settings: "设置", data: "数据",
    machine: "机器", task: "任务", num_classes: "{0} 个类别", speed: "每个样本的速度",
    milliseconds: "{0} 毫秒", damaged: "以下文件已损坏，内容未显示：{0}",
    loss: "损失", gradient_norm: "梯度范数", rate: "学习率", frechet: "Fréchet 距离",
    val_loss: "验证损失", accuracy: "准确率", perplexity: "困惑度", behind: "读取中…",
    class_metric: "各类别的 {0}（最近一次评估）", select_parts: "显示所有部分的曲线",
    many: "最多同时显示 {0} 个训练。", chart_keys: "用方向键沿曲线移动。",
    host: "位于 {0}", updated: "最后写入 {0}",
    "val_batch0_pred.jpg": "验证图像上的预测", "val_batch0_labels.jpg": "对应的标注",
    "train_batch0.jpg": "第一个训练批次", "made.jpg": "生成的图像", "photos.jpg": "各检测器在相同图像上的结果",
    "train_batch_proposals.jpg": "候选区域", "scatter.png": "精度与时间",
  },
};

let language = "en";

export function chooseLanguage(stored) {
  language = stored in WORDS ? stored : (navigator.language || "").startsWith("zh") ? "zh" : "en";
  document.documentElement.lang = language === "zh" ? "zh-CN" : "en";
  for (const element of document.querySelectorAll("[data-text]")) element.textContent = t(element.dataset.text);
}

export const otherLanguage = () => (language === "en" ? "zh" : "en");

// The word for a key; what has no word, such as the name of a metric, is itself.
export function t(key, ...values) {
  const own = Object.hasOwn(WORDS[language], key) ? WORDS[language][key] : key;
  return values.reduce((text, value, i) => text.replace(`{${i}}`, () => value), own);
}

const UNITS = { en: ["s", "min", "h", "d"], zh: ["秒", "分", "小时", "天"] };

export function duration(seconds) {
  if (seconds === null || !Number.isFinite(seconds)) return "–";
  const [s, min, h, d] = UNITS[language];
  if (seconds < 59.5) return `${seconds < 10 ? Number(seconds.toPrecision(2)) : Math.round(seconds)} ${s}`;
  const whole = Math.round(seconds);
  if (whole < 600) return `${Math.floor(whole / 60)} ${min} ${whole % 60} ${s}`;
  const minutes = Math.round(seconds / 60);
  if (minutes < 60) return `${minutes} ${min}`;
  const hours = Math.floor(minutes / 60);
  return hours < 48 ? `${hours} ${h} ${minutes % 60} ${min}` : `${(minutes / 1440).toFixed(1)} ${d}`;
}

export function bytes(count) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let power = 0;
  for (; count >= 1024 && power < units.length - 1; power++) count /= 1024;
  return `${count.toFixed(power ? 1 : 0)} ${units[power]}`;
}

export function number(value) {
  if (value === null || value === undefined || !Number.isFinite(value)) return "–";
  const size = Math.abs(value);
  if (size >= 1e6) return `${Number((value / 1e6).toPrecision(3))} M`;
  if (size >= 1e4) return `${Number((value / 1e3).toPrecision(3))} k`;
  if (Number.isInteger(value)) return String(value);
  return size >= 1e-5 || size === 0 ? String(Number(value.toPrecision(size >= 1e-3 ? 4 : 2))) : value.toExponential(1);
}

export const clock = (seconds) =>
  new Date(seconds * 1000).toLocaleTimeString(language === "zh" ? "zh-CN" : "en-GB", { hour: "2-digit", minute: "2-digit" });
