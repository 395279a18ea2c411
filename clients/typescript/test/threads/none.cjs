exports.handler = () => 1;
